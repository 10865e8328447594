"""The plots of docs/benchmarks.md show figures that the page and its sources have."""

import re

import pytest

from benchmarks.recorded import FIGURES, draw_all, recorded

PAGE = (FIGURES.parent / "benchmarks.md").read_text(encoding="utf-8")
PLOTS = [*recorded()["bars"], *recorded()["lines"]]


def values(plot):
    for series in plot["series"].values():
        yield from series.values() if isinstance(series, dict) else series


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot["file"])
def test_every_value_of_a_plot_stands_on_the_page(plot):
    assert f"figures/{plot['file']}" in PAGE
    numbers = set(re.findall(r"\d+(?:\.\d+)?", PAGE.replace(",", "")))
    assert {f"{value:g}" for value in values(plot)} <= numbers


def test_the_plots_in_the_repository_are_those_of_the_figures(tmp_path):
    drawn = draw_all(tmp_path)
    assert [path.name for path in drawn] == sorted(plot["file"] for plot in PLOTS)
    for path in drawn:
        labels = re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8"))
        kept = re.findall(r"<text[^>]*>([^<]*)</text>", (FIGURES / path.name).read_text(encoding="utf-8"))
        assert labels
        assert labels == kept
