"""The adaptation benchmark: every contender gives the same answers, and a wrong one is found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import penstock as pk
from benchmarks.adapt.command import FIGURES, AdaptRequest, run_adapt
from benchmarks.adapt.runs import Plan, Runner, WrongAnswerError, run
from benchmarks.adapt.workloads import Phase, keys_query

SMALL = AdaptRequest("", rows=2_000, pushes=5, quick=True, json=None, plot=None)


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "14x10"])
def test_all_contenders_of_a_figure_agree(name: str) -> None:
    result = FIGURES[name](SMALL, lambda text: None)
    assert result.verdicts
    assert all(len(points) == len(result.phases) for points in result.points.values())
    assert all(point > 0 for points in result.points.values() for point in points)


def test_a_run_is_saved_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    saved, drawn = tmp_path / "run.json", tmp_path / "run.svg"
    run_adapt(replace(SMALL, figures="12", json=saved, plot=drawn))
    (figure,) = json.loads(saved.read_text())["figures"]
    assert set(figure["points"]) == {"adaptive", "dense", "hash", "generic"}
    assert "<svg" in drawn.read_text()


def test_a_contender_with_other_results_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    runners = [Runner("one", pk.Engine(threads=1)), Runner("two", pk.Engine(threads=1))]
    monkeypatch.setattr(runners[1], "push", lambda *given: (0, -1))
    with pytest.raises(WrongAnswerError, match="differ"):
        run(Plan(keys_query(100), [Phase("small", keys=10)], 100, 3, 2), runners, lambda text: None)
