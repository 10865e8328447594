"""Draw the plots of docs/benchmarks.md from the recorded figures: `python -m benchmarks.recorded`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.plot import Draw, save_panels

RECORDED = Path(__file__).with_name("recorded.json")
FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"
DPI = 80

Plot = Mapping[str, Any]


def recorded() -> Plot:
    """Read the recorded figures."""
    figures: Plot = json.loads(RECORDED.read_text(encoding="utf-8"))
    return figures


def draw_all(folder: Path = FIGURES) -> list[Path]:
    """Draw every plot into a folder; the same figures give the same bytes."""
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and only for plots

    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "penstock", "svg.fonttype": "none"}):
        for plot in recorded()["bars"]:
            panels: list[Draw] = [partial(draw_bars, name=name, plot=plot) for name in plot["series"]]
            save_panels(folder / plot["file"], plot["title"], panels, len(panels), height=4.5, dpi=DPI)
        for plot in recorded()["lines"]:
            save_panels(folder / plot["file"], plot["title"], [partial(draw_lines, plot=plot)], 1, 5, DPI)
    return sorted(folder.glob("*.svg"))


def draw_bars(axis: Any, name: str, plot: Plot) -> None:
    """Draw one series as horizontal bars; wide ranges of ratios on a logarithmic scale."""
    found = dict(reversed(plot["series"][name].items()))
    colours = ["#c0392b" if label == "Penstock" or not name else "#7f8c8d" for label in found]
    marks = axis.barh(list(found), list(found.values()), color=colours)
    axis.bar_label(marks, fmt="%g", padding=3)
    axis.set(xlabel=plot["unit"], title=name)
    if not name:
        axis.set(xscale="log", xlim=(1, 2 * max(found.values())))


def draw_lines(axis: Any, plot: Plot) -> None:
    """Draw each series over the size of a push."""
    for name, values in plot["series"].items():
        axis.plot(plot["points"], values, marker="o", label=name)
    axis.set(xscale="log", yscale="log", xlabel="rows of a push", ylabel=plot["unit"])
    axis.legend()


if __name__ == "__main__":
    draw_all()
