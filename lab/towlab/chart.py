"""Charts as SVG text: lines, bars and levels, labelled axes, readable on light and on dark pages.

Colours are custom properties of the page (page.py), so one picture serves both. Published figures are dashed.
Not here: interaction, other than the titles that a browser shows over a point.
"""

import html
import math

WIDTH, HEIGHT = 680, 340
LEFT, RIGHT, TOP, BOTTOM = 68, 16, 12, 52
COLOURS = 6
VALUE_WIDTH = 7  # of a digit of a value over a bar, in pixels


def number(value):
    """A number as an axis shows it."""
    if value and abs(value) >= 1e6:
        return f"{value / 1e6:g} M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:g} k"
    return f"{value:,.6g}"


def short(value):
    """A number over a bar: three digits, no powers of ten, the units of the axis."""
    for unit, size in (("M", 1e6), ("k", 1e4)):
        if abs(value) >= size:
            return f"{rounded(value / (1e6 if unit == 'M' else 1e3))} {unit}"
    return rounded(value)


def rounded(value):
    """Three digits that count, without an exponent."""
    if not value:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def inline(text):
    """Escaped text in which `words` are code."""
    parts = html.escape(text).split("`")
    if len(parts) % 2 == 0:
        return "`".join(parts)
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))


class Axis:
    """From values to pixels; `log`: powers of ten, for values above 0."""

    def __init__(self, values, start, end, log=False):
        self.start, self.end, self.log = start, end, log
        values = [value for value in values if value is not None and (value > 0 or not log)] or [1]
        if log:
            self.low = math.floor(math.log10(min(values)))
            self.high = max(math.ceil(math.log10(max(values))), self.low + 1)
            self.ticks = [10.0 ** power for power in range(self.low, self.high + 1)]
        else:
            step = nice((max(values) or 1) / 5)
            self.low, self.high = 0, step * math.ceil((max(values) or 1) / step)
            self.ticks = [step * index for index in range(round(self.high / step) + 1)]

    def at(self, value):
        if self.log:
            value = math.log10(value) if value > 0 else self.low
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def nice(step):
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))


def frame_of(title, x_label, y_label, y_axis):
    """The opening of a picture: grid, values of the vertical axis, labels."""
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">']
    for tick in y_axis.ticks:
        y = y_axis.at(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{number(tick)}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text class="label" transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle">'
                 f"{html.escape(y_label)}</text>")
    parts.append(f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">'
                 f"{html.escape(x_label)}</text>")
    return parts


def figure(title, parts, names):
    """The picture with its title and legend. `names`: pairs of a name and whether it is published."""
    keys = "".join(f'<span class="key{" dashed" if dashed else ""}" style="--colour: var(--c{index % COLOURS})">'
                   f"{html.escape(name)}</span>" for index, (name, dashed) in enumerate(names))
    return (f"<figure><figcaption>{inline(title)}</figcaption><div class=\"keys\">{keys}</div>"
            f"{''.join(parts)}</svg></figure>")


def lines(title, x_label, y_label, series, log=False, marks=True):
    """Lines. `series`: (name, [(x, y)], whether published); no chart when nothing was measured."""
    series = [(name, [point for point in points if point[1] is not None], published)
              for name, points, published in series]
    series = [one for one in series if one[1]]
    if not series:
        return ""
    x_axis = Axis([x for _, points, _ in series for x, _ in points], LEFT, WIDTH - RIGHT)
    y_axis = Axis([y for _, points, _ in series for _, y in points], HEIGHT - BOTTOM, TOP, log)
    parts = frame_of(title, x_label, y_label, y_axis)
    for tick in x_axis.ticks:
        parts.append(f'<text x="{x_axis.at(tick):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
                     f"{number(tick)}</text>")
    for index, (name, points, published) in enumerate(series):
        style = f'style="--colour: var(--c{index % COLOURS})"'
        path = " ".join(f"{x_axis.at(x):.1f},{y_axis.at(y):.1f}" for x, y in points)
        parts.append(f'<polyline class="line{" dashed" if published else ""}" {style} points="{path}"/>')
        for x, y in points if marks else []:
            parts.append(f'<circle {style} cx="{x_axis.at(x):.1f}" cy="{y_axis.at(y):.1f}" r="4"><title>'
                         f"{html.escape(name)}: {number(x)}, {number(y)}</title></circle>")
    return figure(title, parts, [(name, published) for name, _, published in series])


def bars(title, y_label, groups, log=False):
    """Bars. `groups`: (label, {name: value}), in each the same names; a value of None leaves a gap, and a name without
    any value is named below the legend and not in it: a colour without a bar looks like a mistake."""
    all_names = list(dict.fromkeys(name for _, values in groups for name in values))
    names = [name for name in all_names if any(values.get(name) is not None for _, values in groups)]
    absent = [name for name in all_names if name not in names]
    groups = [(label, values) for label, values in groups if any(value is not None for value in values.values())]
    shown = [value for _, values in groups for value in values.values() if value is not None]
    if not shown:
        return ""
    # Room for a value over the highest bar, also for one that stands upright.
    y_axis = Axis(shown, HEIGHT - BOTTOM, TOP + 36, log)
    parts = frame_of(title, "", y_label, y_axis)
    room = (WIDTH - LEFT - RIGHT) / len(groups)
    wide = min(64.0, room * 0.8 / len(names))
    # Where the widest value is wider than a bar, values stand upright.
    is_narrow = max(len(short(value)) for value in shown) * VALUE_WIDTH > wide
    for index, (label, values) in enumerate(groups):
        middle = LEFT + room * (index + 0.5)
        parts.append(f'<text x="{middle:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
                     f"{html.escape(label)}</text>")
        for place, name in enumerate(names):
            value = values.get(name)
            if value is None:
                continue
            x = middle + (place - len(names) / 2) * wide
            y = min(y_axis.at(value), HEIGHT - BOTTOM - 1)
            parts.append(f'<rect style="--colour: var(--c{place % COLOURS})" x="{x + 1:.1f}" y="{y:.1f}" '
                         f'width="{wide - 2:.1f}" height="{HEIGHT - BOTTOM - y:.1f}" rx="2"><title>'
                         f"{html.escape(name)}: {number(value)}</title></rect>")
            place_of_text = (f'transform="translate({x + wide / 2 + 4:.1f} {y - 4:.1f}) rotate(-90)" text-anchor="start"'
                             if is_narrow else f'x="{x + wide / 2:.1f}" y="{y - 4:.1f}" text-anchor="middle"')
            parts.append(f'<text class="value" {place_of_text}>{short(value)}</text>')
    if absent:
        title = f"{title} (not measured: {', '.join(absent)})"
    return figure(title, parts, [(name, False) for name in names])


LINE, LABEL_WIDTH = 15, 190


def levels(title, x_label, rows, bar):
    """Many bars below each other, logarithmic, with a line at what is promised. `rows`: (label, {name: value}), in each
    the same names; a value below the axis, also a negative one, is a bar without length."""
    rows = [(label, values) for label, values in rows if any(value is not None for value in values.values())]
    names = list(dict.fromkeys(name for _, values in rows for name in values))
    shown = [value for _, values in rows for value in values.values() if value is not None and value > 0]
    if not rows:
        return ""
    left, height = LABEL_WIDTH, TOP + len(rows) * (LINE * len(names) + 6) + BOTTOM
    axis = Axis([max(value, bar / 100) for value in [*shown, bar]], left, WIDTH - RIGHT - 40, log=True)
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(title)}">']
    bottom = height - BOTTOM
    for tick in axis.ticks:
        x = axis.at(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{number(tick)}</text>')
    y = TOP + 3
    for label, values in rows:
        parts.append(f'<text class="label" x="{left - 8}" y="{y + LINE * len(names) / 2 + 4:.1f}" text-anchor="end">'
                     f"{html.escape(label)}</text>")
        for index, name in enumerate(names):
            parts += level(axis, left, y + index * LINE, index, name, values.get(name))
        y += LINE * len(names) + 6
    x = axis.at(bar)
    parts.append(f'<line class="line dashed" style="--colour: var(--bad)" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" '
                 f'y2="{bottom}"><title>promised: {number(bar)}</title></line>')
    parts.append(f'<text class="label" x="{(left + WIDTH - RIGHT) / 2:.0f}" y="{height - 8}" text-anchor="middle">'
                 f"{html.escape(x_label)}</text>")
    return figure(title, parts, [(name, False) for name in names])


def level(axis, left, y, index, name, value):
    """One bar of `levels`, with its value behind it."""
    if value is None:
        return []
    end = max(left + 1, axis.at(value)) if value > 0 else left + 1
    return [f'<rect style="--colour: var(--c{index % COLOURS})" x="{left}" y="{y:.1f}" width="{end - left:.1f}" '
            f'height="{LINE - 3}" rx="2"><title>{html.escape(name)}: {number(value)}</title></rect>',
            f'<text class="value" x="{end + 4:.1f}" y="{y + LINE - 5:.1f}">{short(value)}</text>']
