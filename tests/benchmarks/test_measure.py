"""Measuring: both orders of running, answers compared, failures kept as rows."""

import pyarrow as pa
import pytest

from benchmarks.measure import Contender, compare, normalise
from penstock.calibration.machine import best_seconds
from penstock.errors import UnsupportedError


def answer(*totals):
    return pa.table({"key": list(range(len(totals))), "total": list(totals)})


def test_contenders_are_timed_forwards_then_backwards_after_one_check():
    called = []

    def contender(name):
        return Contender(name, lambda: called.append(name) or answer(1))

    compare([contender("a"), contender("b")], repeat=3)
    assert "".join(called) == "ab" + "ab" + "ba" + "ab"


def test_quick_contenders_make_more_laps_and_slow_ones_run_both_ways_too(monkeypatch):
    called = []

    def contender(name):
        return Contender(name, lambda: called.append(name) or answer(1))

    def timed(call, processors):
        call()
        return (1.0, 1.0) if called[-1] == "s" else (0.01, 0.01)

    monkeypatch.setattr("benchmarks.measure.timed", timed)
    slow, quick, other = compare([contender("s"), contender("a"), contender("b")], repeat=3, laps=3)
    assert "".join(called) == "sab" + "sab" + "ba" + "ab" + "bas" + "ab" + "ba" + "sab" + "ba" + "ab"
    assert (len(slow.seconds), len(quick.seconds), len(other.seconds)) == (3, 9, 9)


def test_fewer_than_three_rounds_are_never_run():
    (outcome,) = compare([Contender("a", lambda: answer(1))], repeat=1)
    assert len(outcome.seconds) == 3


def test_the_first_answer_is_the_standard_whatever_the_order_of_rows():
    shuffled = answer(1, 2).take([1, 0])
    first, same, other = compare(
        [
            Contender("first", lambda: answer(1, 2)),
            Contender("same", lambda: shuffled),
            Contender("other", lambda: answer(1, 3)),
        ],
        repeat=3,
    )
    assert (first.agrees, same.agrees, other.agrees) == (True, True, False)


def test_different_questions_may_have_different_answers():
    outcomes = compare(
        [Contender("a", lambda: answer(1), question="x"), Contender("b", lambda: answer(2), question="y")], 3
    )
    assert [outcome.agrees for outcome in outcomes] == [True, True]


def test_a_contender_that_raises_is_a_failed_row_and_the_others_go_on():
    def broken():
        raise ValueError("two\nlines")

    failed, fine = compare([Contender("broken", broken), Contender("fine", lambda: answer(1))], 3)
    assert failed.error == "ValueError: two lines"
    assert failed.best is None
    assert fine.best is not None
    assert fine.agrees


def test_what_penstock_cannot_do_yet_is_not_available_rather_than_failed():
    def later():
        raise UnsupportedError("comes later")

    (outcome,) = compare([Contender("later", later)], 3)
    assert outcome.error == "not available: comes later"


def test_a_contender_that_fails_later_loses_its_time():
    left = [1, 1]

    def tires():
        left.pop()
        return answer(1)

    (outcome,) = compare([Contender("tires", tires)], 3)
    assert outcome.seconds
    assert outcome.best is None


def test_best_seconds_calls_as_often_as_asked():
    calls = []
    assert best_seconds(lambda: calls.append(1), 4) >= 0
    assert len(calls) == 4


@pytest.mark.parametrize("chunks", [1, 3])
def test_normalised_tables_do_not_depend_on_chunks_or_metadata(chunks):
    table = pa.concat_tables([answer(5, 6)] * chunks).replace_schema_metadata({"a": "b"})
    whole = normalise(table)
    assert whole.schema.metadata is None
    assert whole.column("key").to_pylist() == [0] * chunks + [1] * chunks
