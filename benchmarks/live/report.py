"""Print a live run, save it as JSON, and draw throughput and latency over buffer size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.live.suite import Latency, Report
from benchmarks.plot import Document, Draw, draw_sweep, save_panels
from benchmarks.report import figure_table, to_json
from benchmarks.sweep_report import print_cases, summary

ACROSS = 4
SHOWN_SHARE = 0.8


def print_report(console: Console, report: Report) -> None:
    """Print a table of speeds for each query and variant, then latencies, then the figures with targets."""
    print_cases(console, report.cases)
    for query in dict.fromkeys(latency.query for latency in report.latencies):
        found = [latency for latency in report.latencies if latency.query == query]
        console.print(latency_table(query, found))
    figures = [*summary(report.cases), *report.figures]
    if figures:
        console.print(figure_table(figures))


def latency_table(query: str, found: Sequence[Latency]) -> Table:
    """One row for each contender, buffer and share of the peak; milliseconds."""
    title = f"\n{query}: milliseconds from the intended send time to the result"
    table = Table(title=title, title_justify="left")
    for heading in ("buffer", "contender", "of peak", "M rows/s", "p50", "p95", "p99", "max", "answers"):
        table.add_column(heading, justify="left" if heading == "contender" else "right")
    for latency in found:
        table.add_row(
            f"{latency.buffer:,}",
            latency.contender,
            f"{latency.share:.0%}",
            f"{latency.rate / 1e6:.3f}",
            *(milliseconds(latency.seconds.get(name)) for name in ("p50", "p95", "p99", "max")),
            verdict(latency),
        )
    return table


def milliseconds(seconds: float | None) -> str:
    """Show a latency; nothing was completed before the end of input where there is none."""
    return "-" if seconds is None else f"{seconds * 1e3:,.2f}"


def verdict(latency: Latency) -> str:
    """Say whether the results were right, or what failed."""
    if latency.error:
        return f"[red]{escape(latency.error)}[/]"
    return "[green]agree[/]" if latency.agrees else "[red]DIFFER[/]"


def document_of(report: Report, when: str, machine: Mapping[str, object]) -> dict[str, Any]:
    """Return a run as plain data: that of every suite, and its latencies."""
    document = to_json("live", when, machine, report.cases, [*summary(report.cases), *report.figures])
    return document | {"latencies": [asdict(latency) for latency in report.latencies]}


def save_live_plot(path: Path, document: Document) -> None:
    """Draw a row of panels for the throughput of each query, and one for its latency."""
    panels = [*throughput_panels(document), *latency_panels(document)]
    title = f"the running query on {document['machine']['cpu']}: throughput and latency over buffer size"
    save_panels(path, title, panels, min(len(panels), ACROSS), height=4, dpi=90)


def throughput_panels(document: Document) -> Iterator[Draw]:
    """Yield a panel for each query and variant."""
    for _, cases in groupby(document["cases"], key=lambda case: str(case["sweep"])):
        yield partial(draw_sweep, cases=list(cases))


def latency_panels(document: Document) -> Iterator[Draw]:
    """Yield a panel for each query: median and p99 at the highest share of the peak."""
    rows = document["latencies"]
    shown = [row for row in rows if row["share"] == SHOWN_SHARE and row["seconds"]]
    for query in dict.fromkeys(str(row["query"]) for row in shown):
        yield partial(draw_latency, query=query, found=[row for row in shown if row["query"] == query])


def draw_latency(axis: Any, query: str, found: Sequence[Document]) -> None:
    """Draw the latency of each contender over buffer size: p50 dashed, p99 solid."""
    for name in dict.fromkeys(row["contender"] for row in found):
        own = [row for row in found if row["contender"] == name]
        buffers = [row["buffer"] for row in own]
        (line,) = axis.plot(
            buffers, [row["seconds"]["p99"] * 1e3 for row in own], marker="o", label=f"{name}, p99"
        )
        medians = [row["seconds"]["p50"] * 1e3 for row in own]
        axis.plot(buffers, medians, linestyle="--", color=line.get_color())
    axis.set(xscale="log", yscale="log", ylabel="ms", title=f"{query}: latency at {SHOWN_SHARE:.0%} of peak")
    if found:
        axis.legend()
