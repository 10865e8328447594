"""Draw a saved run: bars for each case, and lines for each sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

COLOURS = {"penstock": "#c0392b", "c++": "#34495e", "reading": "#bdc3c7", "peer": "#7f8c8d"}
PER_M = 1e6
PANELS_ACROSS = 4

Document = Mapping[str, Any]
Draw = Callable[[Any], None]


def save_plot(path: Path, document: Document) -> None:
    """Draw the run's document as a PNG."""
    bars = [case for case in document["cases"] if not case["sweep"]]
    swept = groupby(
        (case for case in document["cases"] if case["sweep"]), key=lambda case: str(case["sweep"])
    )
    panels = [partial(draw_bars, case=case) for case in bars]
    panels += [partial(draw_sweep, cases=list(cases)) for _, cases in swept]
    title = f"{document['suite']} on {document['machine']['cpu']}"
    save_panels(path, title, panels, min(len(panels), PANELS_ACROSS), height=5, dpi=120)


def save_panels(path: Path, title: str, panels: Sequence[Draw], across: int, height: float, dpi: int) -> None:
    """Write a picture of panels, so many to a row, each drawn on an axis of its own."""
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and only for --plot

    mpl.use("Agg")  # no display is needed to write a file
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend is chosen

    down = -(-len(panels) // across)
    size = 7 * across, height * down
    figure, axes = plt.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for draw, axis in zip(panels, axes.flat, strict=False):
        draw(axis)
    figure.suptitle(title)
    # Without a date the same figures give the same bytes.
    figure.savefig(path, dpi=dpi, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def draw_bars(axis: Any, case: Document) -> None:
    """Draw one case as horizontal bars, the first contender on top."""
    done = [outcome for outcome in reversed(case["outcomes"]) if outcome["rows_per_second"]]
    speeds = [outcome["rows_per_second"] / PER_M for outcome in done]
    names = [outcome["name"] for outcome in done]
    marks = axis.barh(names, speeds, color=[COLOURS[outcome["group"]] for outcome in done])
    axis.bar_label(marks, fmt="%.0f", padding=3)
    axis.set_xlabel("M rows/s")
    axis.set_title(f"{case['name']}, {case['rows'] / PER_M:g} M rows, {case['keys']:,} keys")


def draw_sweep(axis: Any, cases: Sequence[Document]) -> None:
    """Draw each contender's speed over the points of a sweep."""
    names = dict.fromkeys(outcome["name"] for case in cases for outcome in case["outcomes"])
    for name in names:
        points = [(case["point"], speed_of(case, name)) for case in cases]
        known = [(point, speed / PER_M) for point, speed in points if speed]
        axis.plot([point for point, _ in known], [speed for _, speed in known], marker="o", label=name)
    axis.set(yscale="log", ylabel="M rows/s", title=cases[0]["sweep"])
    if cases[0]["point"] > 0:
        axis.set(xscale="log")
    else:  # points without a scale of their own, such as the names of aggregates
        axis.set_xticks([case["point"] for case in cases], [case["name"] for case in cases])
    axis.legend()


def speed_of(case: Document, name: str) -> float | None:
    """The speed of a contender in a case, None if it failed or was absent."""
    found = (outcome["rows_per_second"] for outcome in case["outcomes"] if outcome["name"] == name)
    return next(found, None)
