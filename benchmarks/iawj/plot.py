"""Draw the paper's figures 5-7 and 9-18 for this machine, from a saved run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.plot import Document, Draw, save_panels

METRICS = (
    ("rows_per_ms", "rows/ms"),
    ("latency_95_ms", "95 % latency, ms"),
    ("half_ms", "half of the matches, ms"),
)
PHASES = ("wait", "partition", "build", "sort", "merge", "push", "probe")
ACROSS = 3


def save_join_plot(path: Path, document: Document) -> None:
    """Draw the run as a PNG: a panel for each figure and metric."""
    title = f"Intra-window joins on {document['machine']['cpu']}"
    save_panels(path, title, panels(document), ACROSS, height=4.5, dpi=80)


def panels(document: Document) -> list[Draw]:
    """One function for each panel, which draws it on an axis."""
    real, series = document["real"], document["series"]
    drawn: list[Draw] = [partial(bars, measured=real, key=key, label=label) for key, label in METRICS[:2]]
    drawn += [partial(draw, measured=measurement) for draw in (curves, breakdown) for measurement in real]
    drawn += [
        partial(lines, series=value, key=key, label=label) for value in series for key, label in METRICS
    ]
    turned = groupby(document["knobs"], key=lambda row: (row["number"], row["title"]))
    drawn += [partial(knob, heading=heading, points=list(points)) for heading, points in turned]
    return drawn


def bars(axis: Any, measured: Sequence[Document], key: str, label: str) -> None:
    """Figure 5: a group of bars for each workload."""
    names = list(measured[0]["runs"])
    for place, name in enumerate(names):
        at = [group + place / (len(names) + 2) for group in range(len(measured))]
        axis.bar(
            at,
            [measurement["runs"][name][key] for measurement in measured],
            width=1 / (len(names) + 2),
            label=name,
        )
    axis.set_xticks(
        [group + 0.4 for group in range(len(measured))], [measurement["workload"] for measurement in measured]
    )
    axis.set(yscale="log", ylabel=label, title=f"figure 5: {label}")
    axis.legend(fontsize="x-small", ncols=2)


def curves(axis: Any, measured: Document) -> None:
    """Figure 6: how much of the result is there over time."""
    for name, run in measured["runs"].items():
        axis.plot([at for at, _ in run["progress"]], [part for _, part in run["progress"]], label=name)
    axis.set(xlabel="ms", ylabel="part of the matches", title=f"figure 6: progress, {measured['workload']}")
    axis.legend(fontsize="x-small")


def breakdown(axis: Any, measured: Document) -> None:
    """Figure 7: where the time goes, without waiting."""
    names = list(measured["runs"])
    below = [0.0] * len(names)
    for phase in PHASES[1:]:
        parts = [measured["runs"][name]["phases_ms"].get(phase, 0.0) for name in names]
        axis.bar(names, parts, bottom=below, label=phase)
        below = [a + b for a, b in zip(below, parts, strict=True)]
    axis.set(ylabel="ms", title=f"figure 7: work by phase, {measured['workload']}")
    axis.legend(fontsize="x-small")


def lines(axis: Any, series: Document, key: str, label: str) -> None:
    """Figures 9 to 14: a line for each algorithm."""
    points = series["points"]
    for name in points[0]["runs"]:
        axis.plot([p["at"] for p in points], [p["runs"][name][key] for p in points], marker="o", label=name)
    axis.set(yscale="log", ylabel=label, title=f"figure {series['number']}: {series['title']}")
    axis.legend(fontsize="x-small", ncols=2)


def knob(axis: Any, heading: tuple[int, str], points: Sequence[Document]) -> None:
    """Figures 15 to 18: an algorithm over its own knob."""
    for name in dict.fromkeys(point["algorithm"] for point in points):
        mine = [point for point in points if point["algorithm"] == name]
        axis.plot([p["at"] for p in mine], [p["busy_ms"] for p in mine], marker="o", label=name)
    axis.set(ylabel="ms of work", xlabel=heading[1], title=f"figure {heading[0]}: {heading[1]}")
    axis.legend(fontsize="x-small")
