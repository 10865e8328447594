"""A run that begins with the plan of earlier ones gives the same answer, and profiles when its turn has come."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.runtime.adapt.controller import Policy
from penstock.runtime.adapt.known_plan import KnownPlan, Schedule, decoded, encoded
from penstock.runtime.session import Session

STREAM = pk.stream("rows", {"t": "int64", "k": "int64", "f": "int64", "v": "int64", "x": "float64"}, time="t")
QUERY = (
    STREAM.filter((pk.col("f") < 5) & (pk.col("v") > 2))
    .window(1_000, by="k")
    .agg(n=pk.count(), s=pk.sum("v"), m=pk.mean("x"), low=pk.min("v"))
)
PATIENT = Policy(patience=2_000, task=1_000, every=64, sample=300, start=lambda work: work())
ROWS = 600


def batch(number: int, far: bool = False, nulls: bool = False) -> pa.RecordBatch:
    rng = np.random.default_rng(number)
    values = pa.array(rng.integers(0, 100, ROWS), mask=np.arange(ROWS) % 7 == 0 if nulls else None)
    return pa.record_batch(
        {
            "t": number * ROWS + np.arange(ROWS),
            "k": rng.integers(0, 1 << 60 if far else 50, ROWS),
            "f": rng.integers(0, 10, ROWS),
            "v": values,
            "x": rng.random(ROWS),
        }
    )


def run(
    batches: list[pa.RecordBatch],
    known: dict[str, KnownPlan] | None = None,
    engine: pk.Engine | None = None,
    policy: Policy = PATIENT,
) -> tuple[pa.Table, Session]:
    session = QUERY.compiled().open(engine or pk.Engine(threads=1), policy=policy, known=known)
    for given in batches:
        session.push("rows", given)
    made = session.finish()
    order = [("window_start", "ascending"), ("k", "ascending")]
    return pa.Table.from_batches(made, session.schema).sort_by(order), session


def only(session: Session) -> KnownPlan:
    (plan,) = session.known_plans.values()
    return plan


def begun(session: Session) -> dict[str, str]:
    return {
        change.what: change.after for change in session.metrics.adaptations if "earlier run" in change.why
    }


def test_what_a_run_had_to_learn_the_next_one_begins_with() -> None:
    batches = [batch(0, nulls=True), batch(1, far=True), batch(2)]
    answer, first = run(batches)
    found = only(first)
    assert (found.key_table, found.nullable, found.rows, found.runs) == ("hash", ("v",), 3 * ROWS, 1)
    again, second = run(batches, decoded(encoded(first.known_plans)))
    assert again == answer
    assert begun(second) == {"key table": "hash", "null flags": "v"}
    assert [change for change in second.metrics.adaptations if change.row] == []
    assert (only(second).rows, only(second).runs) == (6 * ROWS, 2)


def test_short_runs_are_profiled_when_together_they_have_enough_rows() -> None:
    known: dict[str, KnownPlan] = {}
    left = []
    for number in range(6):
        answer, session = run([batch(number)], known)
        assert answer == run([batch(number)])[0]
        known = session.known_plans
        left.append(only(session).schedule.next)
    assert left[:4] == [1_400, 800, 200, 0]
    assert left[4] > PATIENT.patience  # the fifth run was profiled, and the next profile is far off
    assert left[5] == left[4] - ROWS


@pytest.mark.parametrize("backend", ["native", "interpret"])
@pytest.mark.parametrize(
    "known",
    [
        KnownPlan(key_table="hash"),
        KnownPlan(key_table="sparse", wide=True),
        KnownPlan(key_table="dense", ranges=((10, 12),)),
        KnownPlan(key_table="dense", ranges=((-(1 << 62), 1 << 62),)),
        KnownPlan(key_table="dense", ranges=((0, 9), (0, 9))),
        KnownPlan(nullable=("v", "k", "gone"), wide=True),
        KnownPlan(order=((1,), (0,))),
        KnownPlan(order=((7,), (0,))),
        KnownPlan(key_table="none", schedule=Schedule(next=0)),
    ],
    ids=lambda plan: plan.show(),
)
def test_any_known_plan_gives_the_same_bits(known: KnownPlan, backend: str) -> None:
    batches = [batch(0), batch(1, far=True), batch(2, nulls=True)]
    answer, first = run(batches)
    (name,) = first.known_plans
    engine = pk.Engine(threads=1, backend=backend)
    again, session = run(batches, decoded(encoded({name: replace(known, rows=1, runs=1)})), engine)
    assert again == answer
    assert session.metrics.balanced


def test_an_engine_that_does_not_adapt_begins_with_nothing() -> None:
    _, first = run([batch(0, far=True)])
    _, session = run([batch(0)], first.known_plans, pk.Engine(threads=1, adaptive=False))
    assert session.metrics.adaptations == []


def test_an_assumption_of_the_engine_comes_first() -> None:
    _, first = run([batch(0, far=True)])
    engine = pk.Engine(threads=1, assume={"key table": "dense"})
    _, session = run([batch(0)], first.known_plans, engine)
    assert only(session).key_table == "dense"


def test_what_another_version_wrote_is_left_out() -> None:
    assert decoded("{}") == decoded('{"views": {"rows": 3}}') == decoded("[1]") == decoded("no json") == {}
