"""Draw a saved run: bars for each case, and lines over the number of keys if it was swept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLOURS = {"penstock": "#c0392b", "c++": "#34495e", "peer": "#7f8c8d"}
PER_M = 1e6

Document = Mapping[str, Any]


def save_plot(path: Path, document: Document) -> None:
    """Draw the run's document as a PNG."""
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and only for --plot

    mpl.use("Agg")  # no display is needed to write a file
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend is chosen

    bars = [case for case in document["cases"] if not is_sweep(case)]
    swept = [case for case in document["cases"] if is_sweep(case)]
    panels = len(bars) + bool(swept)
    figure, axes = plt.subplots(1, panels, figsize=(7 * panels, 5), squeeze=False)
    for case, axis in zip(bars, axes[0], strict=False):
        draw_bars(axis, case)
    if swept:
        draw_sweep(axes[0][-1], swept)
    figure.suptitle(f"{document['suite']} on {document['machine']['cpu']}")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def is_sweep(case: Document) -> bool:
    """Tell whether a case is one point of the sweep over keys."""
    return str(case["name"]).startswith("keys ")


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
    """Draw each contender's speed over the number of keys."""
    names = dict.fromkeys(outcome["name"] for case in cases for outcome in case["outcomes"])
    for name in names:
        points = [(case["keys"], speed_of(case, name)) for case in cases]
        known = [(keys, speed / PER_M) for keys, speed in points if speed]
        axis.plot([keys for keys, _ in known], [speed for _, speed in known], marker="o", label=name)
    axis.set(xscale="log", yscale="log", xlabel="keys", ylabel="M rows/s", title="number of keys")
    axis.legend()


def speed_of(case: Document, name: str) -> float | None:
    """The speed of a contender in a case, None if it failed or was absent."""
    found = (outcome["rows_per_second"] for outcome in case["outcomes"] if outcome["name"] == name)
    return next(found, None)
