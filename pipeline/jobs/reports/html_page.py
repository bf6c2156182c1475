"""A report as one HTML page: figures, plots and tables, without network, script or fonts.

Source: docs/spec/pipeline.md §4, job 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Final

from barnabas.pipeline.jobs.time_arguments import time_text

from .report import Cell, Chart, Lines, Report, Table, Timeline, replace_file
from .svg_charts import COLOURS, drawn, number_text

_ROWS_MAX: Final = 200
"""A page shows so many rows of a table; the JSON has them all."""
_STYLE: Final = """
:root { color-scheme: light dark; --ink:#1d2733; --soft:#5c6b7a; --grid:#e3e8ed; --paper:#fff;
  --card:#f5f7f9; --c0:#2a6fbb; --c1:#c8553d; --c2:#3a8f5c; --c3:#8a5fb0; --c4:#b7791f;
  --c5:#2b8c9e; --c6:#c04f8a; --c7:#6b7280; --ok:#58a3a3; --warn:#d69e2e; --bad:#c53030;
  --none:#b9c2cb; }
@media (prefers-color-scheme: dark) { :root { --ink:#e4e9ee; --soft:#9aa8b5; --grid:#2c3640;
  --paper:#14191f; --card:#1d242c; --c0:#6aa5e8; --c1:#ee8a70; --c2:#6cc491; --c3:#b996dc;
  --c4:#dfae5c; --c5:#6bc3d3; --c6:#e58cbb; --c7:#a3adb8; --ok:#3f8a8a; --warn:#d9a83f;
  --bad:#e05a5a; --none:#4a5560; } }
body { margin:0 auto; max-width:960px; padding:24px 20px 60px; background:var(--paper);
  color:var(--ink); font:15px/1.5 system-ui,sans-serif; }
h1 { font-size:24px; margin:0; } h2 { font-size:17px; margin:36px 0 8px; }
.when { color:var(--soft); margin:2px 0 20px; } .note { color:var(--soft); margin:4px 0; }
.figures { display:grid; grid-template-columns:repeat(auto-fill,minmax(150px,1fr)); gap:10px; }
.figure { background:var(--card); border-radius:8px; padding:10px 14px; }
.figure b { display:block; font-size:20px; overflow-wrap:anywhere; }
.figure span { color:var(--soft); font-size:13px; }
svg { display:block; width:100%; height:auto; } svg text { font:12px system-ui,sans-serif; }
.grid { stroke:var(--grid); } .tick { fill:var(--soft); } .name,.value { fill:var(--ink); }
.line { fill:none; stroke-width:1.8; stroke-linejoin:round; }
.legend { margin:0 0 6px; font-size:13px; } .legend span { margin-right:16px; white-space:nowrap; }
.legend i { display:inline-block; width:11px; height:11px; border-radius:3px; margin-right:5px; }
.scroll { overflow-x:auto; } table { border-collapse:collapse; font-size:13px; width:100%; }
th { text-align:left; color:var(--soft); font-weight:600; } td,th { padding:4px 10px 4px 0;
  border-bottom:1px solid var(--grid); white-space:nowrap; }
td.n,th.n { text-align:right; font-variant-numeric:tabular-nums; } .empty { color:var(--soft); }
.v-OK { fill:var(--ok); background:var(--ok); } .v-WARN { fill:var(--warn);
  background:var(--warn); } .v-ERR,.v-STOP { fill:var(--bad); background:var(--bad); }
.v-STALL { fill:var(--c3); background:var(--c3); } .v-REWIND { fill:var(--c0);
  background:var(--c0); } .v-NOTFOUND { fill:var(--none); background:var(--none); }
"""
_LINE_STYLE: Final = "".join(
    f".line.c{n} {{ stroke:var(--c{n}); }} .dot.c{n},.bar.c{n} {{ fill:var(--c{n}); }}"
    f" i.c{n} {{ background:var(--c{n}); }}\n"
    for n in range(COLOURS)
)


def html(report: Report) -> str:
    """The whole page."""
    title = f"barnabas {report.job}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="when">{time_text(report.started_ms)}, took {report.seconds:.1f} s'
        f" · {_verdict(report)}</p>",
        _figures(report),
        *(f'<p class="note">{escape(note)}</p>' for note in report.notes),
        *(_chart(chart) for chart in report.charts),
        *(_table(table) for table in report.tables),
        _arguments(report),
    ]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        '</title><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}{_LINE_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def write_html(report: Report, path: Path) -> None:
    """Write the page under its name at once, or not at all."""
    replace_file(path, html(report))


def _verdict(report: Report) -> str:
    if not report.findings:
        return "nothing to look at"
    return f"{report.findings} {'thing' if report.findings == 1 else 'things'} to look at"


def _figures(report: Report) -> str:
    cells = "".join(
        f'<div class="figure"><b>{_cell(value)}</b><span>{escape(name)}</span></div>'
        for name, value in report.figures.items()
    )
    return f'<div class="figures">{cells}</div>'


def _chart(chart: Chart) -> str:
    unit = f", {chart.unit}" if isinstance(chart, Lines) else ""
    return f"<h2>{escape(chart.title + unit)}</h2>{_legend(chart)}{drawn(chart)}"


def _legend(chart: Chart) -> str:
    if isinstance(chart, Lines):
        classes = [(name, f"c{n % COLOURS}") for n, name in enumerate(chart.series)]
    elif isinstance(chart, Timeline):
        labels = {span.label for row in chart.rows.values() for span in row}
        classes = [(label, f"v-{label}") for label in sorted(labels)]
    else:
        return ""
    items = "".join(
        f'<span><i class="{style}"></i>{escape(name)}</span>' for name, style in classes
    )
    return f'<p class="legend">{items}</p>'


def _table(table: Table) -> str:
    heads = list(zip(table.columns, _are_numbers(table), strict=True))
    head = "".join(f"<th{_right(is_n)}>{escape(name)}</th>" for name, is_n in heads)
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td{_right(is_n)}>{_cell(value)}</td>"
            for value, (_, is_n) in zip(row, heads, strict=True)
        )
        + "</tr>"
        for row in table.rows[:_ROWS_MAX]
    )
    shown = min(len(table.rows), _ROWS_MAX)
    more = f'<p class="note">{shown} of {table.total} rows</p>' if table.total > shown else ""
    if not table.rows:
        return f'<h2>{escape(table.title)}</h2><p class="empty">None.</p>'
    return (
        f'<h2>{escape(table.title)}</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{more}"
    )


def _are_numbers(table: Table) -> Iterable[bool]:
    for at in range(len(table.columns)):
        values = [row[at] for row in table.rows if row[at] is not None]
        yield bool(values) and all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in values
        )


def _right(is_number: bool) -> str:
    return ' class="n"' if is_number else ""


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u2009")
    return number_text(value) if isinstance(value, float) else escape(str(value))


def _arguments(report: Report) -> str:
    rows = [[name, str(value)] for name, value in report.arguments.items()]
    return _table(Table("Asked for", ["argument", "value"], rows, len(rows))) if rows else ""
