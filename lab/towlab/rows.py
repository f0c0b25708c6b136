"""The rows of a result: one object per row, as a table and as JSON.

Keys of a row: test, metric, value, unit, published (a number or null), and beside them published_by, bar, kept, samples,
least and most of them, others (processors kept busy by anything else meanwhile) and note. A value is the median of its
samples.
"""

import json
import statistics


def bar_text(bar):
    """`("<=", 1.0)` as people write it."""
    return f"{bar[0]} {plain(bar[1])}" if bar else ""


def kept(value, bar):
    """Whether a value keeps its bar; None when there is no bar or no value."""
    if not bar or value is None:
        return None
    return value <= bar[1] if bar[0] == "<=" else value >= bar[1]


def plain(value):
    """A number with as many digits as it deserves."""
    if value is None:
        return "-"
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


class Rows:
    """All rows, in the order in which they are to be read."""

    def __init__(self):
        self.rows = []

    def add(self, test, metric, samples, unit, published=None, published_by=None, bar=None, note="", others=None):
        """A row. `samples`: the measured values, one number, or an empty list when it could not be measured."""
        if samples is None:
            samples = []
        if not isinstance(samples, list):
            samples = [samples]
        value = statistics.median(samples) if samples else None
        self.rows.append({"test": test, "metric": metric, "value": value, "unit": unit, "published": published,
                          "published_by": published_by, "bar": bar_text(bar), "kept": kept(value, bar),
                          "least": min(samples, default=None), "most": max(samples, default=None),
                          "samples": samples, "others": others, "note": note})
        return value

    def value(self, test, metric):
        """The value of a row, None when there is none."""
        found = [row["value"] for row in self.rows if row["test"] == test and row["metric"] == metric]
        return found[0] if found else None

    def write(self, path):
        """All rows as JSON."""
        path.write_text(json.dumps(self.rows, indent=1) + "\n")

    def table(self):
        """Lines for a terminal."""
        head = ("test", "metric", "value", "least to most", "published", "bar", "kept")
        cells = [head]
        for row in self.rows:
            published = f"{plain(row['published'])} ({row['published_by']})" if row["published"] is not None else ""
            cells.append((row["test"], row["metric"], f"{plain(row['value'])} {row['unit']}".strip(),
                          f"{plain(row['least'])} to {plain(row['most'])}" if len(row["samples"]) > 1 else "", published,
                          row["bar"], {True: "yes", False: "NO", None: ""}[row["kept"]]))
        widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]
        return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]
