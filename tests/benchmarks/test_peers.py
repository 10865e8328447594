"""Peers and the reference answer the same question alike."""

from dataclasses import replace

import pytest

from benchmarks import peers
from benchmarks.contenders import Field, cpp_contender, open_field, wanted_event, ysb_contenders
from benchmarks.measure import compare, normalise
from benchmarks.reference import NoCompilerError
from benchmarks.workloads import EventType, YsbKeyed, ysb_keyed

SPEC = YsbKeyed(rows=20_000, keys=30)


@pytest.fixture(scope="module", autouse=True)
def installed():
    for name in ("polars", "duckdb", "pandas"):
        pytest.importorskip(name)


@pytest.mark.parametrize("kind", EventType)
def test_every_peer_gives_the_same_table(kind):
    table = ysb_keyed(replace(SPEC, event_type=kind))
    contenders = peers.peer_contenders(table, 2, wanted_event(kind), ["polars", "duckdb", "pandas"])
    answers = [normalise(contender.to_table(contender.run())) for contender in contenders]
    assert len(answers) == 5
    assert answers[0].num_rows > 0
    assert all(answer.equals(answers[0]) for answer in answers)


def test_the_reference_agrees_with_the_peers():
    field = open_field([1, 2], ["polars", "duckdb"])
    if isinstance(field.reference, NoCompilerError):
        pytest.skip(f"THE C++ REFERENCE IS NOT TESTED: {field.reference}")
    contenders = [c for c in ysb_contenders(ysb_keyed(SPEC), SPEC, field) if c.group != "penstock"]
    assert [outcome.agrees for outcome in compare(contenders, 3)] == [True] * 8


def test_a_peer_that_is_not_installed_is_a_failed_row(monkeypatch):
    def absent(table, threads, wanted):
        raise ImportError("no such package")

    monkeypatch.setitem(peers.MAKERS, "polars", absent)
    (contender,) = peers.peer_contenders(ysb_keyed(SPEC), 2, 1, ["polars"])
    (outcome,) = compare([contender], 3)
    assert outcome.error == "ImportError: no such package"


def test_a_missing_compiler_is_a_failed_row():
    field = Field(NoCompilerError("no compiler"))
    contender = cpp_contender(field.reference, ysb_keyed(SPEC), SPEC.keys, 1)
    (outcome,) = compare([contender], 3)
    assert outcome.error == "NoCompilerError: no compiler"
