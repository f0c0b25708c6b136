"""A report as one HTML file: what was kept, charts, all rows, the machine. It loads nothing from anywhere."""

import html

from towlab.chart import inline
from towlab.rows import plain

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1d2433; --soft: #5b6475; --rule: #dfe3ea;
  --good: #10713f; --bad: #b3261e; --c0: #1f5fd1; --c1: #c2410c; --c2: #0f7b6c; --c3: #8e3fbf; --c4: #8a6d00; --c5: #5b6475; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171d; --ink: #e8ebf0; --soft: #a2abba; --rule: #313744;
  --good: #58cf8f; --bad: #ff8a80; --c0: #79a8ff; --c1: #ff9d6b; --c2: #4fd1bd; --c3: #cf9bf5; --c4: #e3c04d; --c5: #a2abba; } }
body { font: 15px/1.5 system-ui, sans-serif; background: var(--paper); color: var(--ink); margin: 0 auto; max-width: 1120px;
  padding: 24px 20px 60px; }
h1 { font-size: 26px; line-height: 1.2; } h2 { font-size: 19px; margin-top: 40px; }
p { max-width: 78ch; } .soft { color: var(--soft); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 28px; }
figure { margin: 0; } figcaption { font-weight: 600; } svg { width: 100%; height: auto; display: block; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); } svg .label { fill: var(--ink); }
svg .value { font-size: 11px; fill: var(--ink); } .grid { stroke: var(--rule); stroke-width: 1; }
.line { fill: none; stroke: var(--colour); stroke-width: 2.2; } .dashed { stroke-dasharray: 6 5; }
circle, rect { fill: var(--colour); }
.keys { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 13px; margin: 4px 0; }
.key::before { content: ""; display: inline-block; width: 18px; border-top: 3px solid var(--colour); margin-right: 6px;
  vertical-align: middle; } .key.dashed::before { border-top-style: dashed; }
.table { overflow-x: auto; } table { border-collapse: collapse; font-size: 13.5px; width: 100%; }
th, td { text-align: left; padding: 4px 12px 4px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.yes { color: var(--good); font-weight: 600; } .no { color: var(--bad); font-weight: 600; }
"""


def verdict(row):
    if row["kept"] is None:
        return ""
    return '<span class="yes">kept</span>' if row["kept"] else '<span class="no">not kept</span>'


def measured(row):
    """The value with its unit; what did not come about has neither."""
    return f"{plain(row['value'])} {row['unit']}" if row["value"] is not None else "none"


def table(rows):
    """The rows as a table; the test is named once."""
    head = "".join(f"<th>{name}</th>" for name in ("test", "metric", "value", "samples", "published", "bar", "", "note"))
    lines, last = [], None
    for row in rows:
        test = row["test"] if row["test"] != last else ""
        last = row["test"]
        published = f"{plain(row['published'])} ({row['published_by']})" if row["published"] is not None else ""
        samples = " ".join(plain(sample) for sample in row["samples"]) if len(row["samples"]) > 1 else ""
        cells = [html.escape(test), html.escape(row["metric"]), None, html.escape(samples), html.escape(published),
                 html.escape(row["bar"]), verdict(row), inline(row["note"])]
        number = f'<td class="number">{html.escape(measured(row))}</td>'
        lines.append("<tr>" + "".join(number if cell is None else f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def page(title, words, charts, rows, machine):
    """The whole page. `words`: paragraphs; `charts`: SVG figures; `rows`: as in rows.py; `machine`: names and values."""
    judged = [row for row in rows if row["kept"] is not None]
    missed = [row for row in judged if not row["kept"]]
    summary = f"{len(judged) - len(missed)} of {len(judged)} bars kept."
    if missed:
        items = "".join(f"<li>{html.escape(row['test'])}, {html.escape(row['metric'])}: {html.escape(measured(row))}, "
                        f"promised {html.escape(row['bar'])}</li>" for row in missed)
        summary += f" Not kept:<ul>{items}</ul>"
    facts = "".join(f"<tr><td>{html.escape(name)}</td><td>{html.escape(str(value))}</td></tr>"
                    for name, value in machine.items())
    paragraphs = "".join(f"<p>{inline(text)}</p>" for text in words)
    shown = "".join(chart for chart in charts if chart)
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>'
            f"<h1>{html.escape(title)}</h1>{paragraphs}<div>{summary}</div>"
            f'<h2>Charts</h2><div class="charts">{shown}</div><h2>All rows</h2>{table(rows)}'
            f'<h2>Machine</h2><div class="table"><table><tbody>{facts}</tbody></table></div></body></html>\n')
