"""Two builds in turns: the questions are answered, costs are those of processes, failures are named."""

from __future__ import annotations

import pytest

from benchmarks.live.builds import BuildError, current
from benchmarks.turns.questions import LAKE, QUESTIONS
from benchmarks.turns.suite import Cost, TurnsRequest, _asked, _ratios, run_command


@pytest.mark.parametrize("name", [name for name in QUESTIONS if name != "spark"])
def test_each_question_has_rows_as_an_answer(name, tmp_path, monkeypatch):
    monkeypatch.setenv(LAKE, str(tmp_path))
    assert QUESTIONS[name](8_000, 1).num_rows > 0


def test_a_process_answers_with_the_build_it_is_given(tmp_path):
    cost = _asked("small", current(), TurnsRequest("unused", rows=1_000, laps=1), tmp_path)
    assert cost.process >= cost.processor > 0
    assert cost.answers == QUESTIONS["small"](1_000, 1).num_rows


def test_a_failing_process_is_named_with_its_build(tmp_path):
    with pytest.raises(BuildError, match="no such question failed with Penstock"):
        _asked("no such question", current(), TurnsRequest("unused"), tmp_path)


def test_ratios_above_one_say_that_the_second_build_is_faster():
    before, after = [Cost(4.0, 2.0, 1.0, 1), Cost(8.0, 3.0, 2.0, 1)], [Cost(3.0, 1.0, 2.0, 1)]
    assert list(_ratios(before, after)) == [2.0, 2.0, 0.5]


def test_an_unknown_question_is_refused_with_those_there_are():
    with pytest.raises(BuildError, match="ysb, swag"):
        run_command(TurnsRequest("unused", questions=("yesb",)))
