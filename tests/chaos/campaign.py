"""Run generated queries with adaptation forced at every task: `python -m tests.chaos.campaign --queries 100000`.

Each task is profiled, and a random decision follows: the key table, its sharing, the order of the filter, the addition of
runs of a key, the width of sums and the flags of nulls. The answer must be the interpreter's, bit by bit where it has no floats. Every tenth query runs in
fully optimised code. The campaign goes on
where the last one ended.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import penstock as pk
from penstock.codegen.tiers import TieredKernel
from penstock.compile import forget
from penstock.ir.interpret import interpret
from penstock.operators.pane_aggregate.stage import WindowStage
from penstock.physical.nodes import FilterOrder, KeyTable, Node, PaneAggregate, Sharing
from penstock.physical.profile import Profile
from penstock.physical.specialise import PaneProfile, StateProfile, specialise
from penstock.runtime.adapt.controller import Machine, Policy
from penstock.runtime.session import Session
from tests.chaos.queries import batches_of, float_batches_of, float_query_of, query_of

FLOATS = re.compile(r"-?\d+(\.\d+(e[+-]?\d+)?|e[+-]?\d+)")
WIDEST = 1 << 12  # columns of a dense table
FORGET_EVERY = 500  # queries: compiled code is dropped


@dataclass
class RandomDecisions:
    """Decides at random among the variants that hold for what was seen; counts the changes it asked for."""

    random: Random
    columns: tuple[str, ...] = ()  # that kernels read
    asked: int = 0
    tables: set[str] = field(default_factory=set)

    def __call__(self, profile: Profile, state: StateProfile, machine: Machine, node: Node) -> Node:
        assert isinstance(node.op, PaneAggregate)
        op, random = node.op, self.random
        columns = [name for name in self.columns if random.random() < 0.2]
        nullable = (
            (op.nullable - state.null_free) if random.random() < 0.5 else op.nullable | frozenset(columns)
        )
        wide = op.wide and not state.narrow if random.random() < 0.5 else True
        seen = PaneProfile(
            self._table(op, state),
            nullable,
            wide,
            self._order(op, state),
            self._sharing(op, state),
            bool(op.keys) and random.random() < 0.5,
        )
        chosen = specialise(node, seen)
        self.asked += chosen.op != node.op
        self.tables.add(seen.key_table)
        return chosen if chosen.op != node.op else node

    def _table(self, op: PaneAggregate, state: StateProfile) -> KeyTable:
        choices: list[KeyTable] = [op.key_table]
        if op.key_table == "dense":
            choices.append("hash")
        if state.ranges and math.prod(high - low + 2 for low, high in state.ranges) <= WIDEST:
            choices.append("dense")
        return self.random.choice(choices)

    def _order(self, op: PaneAggregate, state: StateProfile) -> FilterOrder | None:
        numbers = [number for number, cost in enumerate(state.conjuncts) if cost.total]
        fixed = tuple(number for number, cost in enumerate(state.conjuncts) if not cost.total)
        if len(state.conjuncts) < 2 or self.random.random() < 0.3:
            return None
        self.random.shuffle(numbers)
        cut = self.random.randint(0 if fixed else 1, len(numbers))
        first, later = (*fixed, *numbers[:cut]), numbers[cut:]
        return (first, *((number,) for number in later))

    def _sharing(self, op: PaneAggregate, state: StateProfile) -> Sharing:
        if state.use is None:
            return op.sharing
        choices: list[Sharing] = ["private", "partitioned", *(["shared"] if state.use.states else [])]  # type: ignore[list-item]
        return self.random.choice(choices)


def policy_of(decide: Callable[..., Node], sample: int) -> Policy:
    """Profile every task at once, and wait for nothing."""
    return Policy(
        patience=0, task=1, every=0, sample=sample, wait=1, start=lambda work: work(), decide=decide
    )


def check(seed: int, shape: int | None = None) -> RandomDecisions:
    """Compare one query of a seed with the interpreter; `shape` picks one of few queries, which are compiled once."""
    random = Random(seed)
    query, compiled = query_of(seed if shape is None else shape)
    batches, bounded = batches_of(random), random.random() < 0.5
    decide = RandomDecisions(random)
    threads = random.choice([1, 1, 2, 3])
    engine = pk.Engine(threads=threads, task_bytes=random.choice([64, 512]) if threads > 1 else 1 << 20)
    session = compiled.open(engine, bounded, policy_of(decide, random.choice([1, 7, 100])))
    decide.columns = _begin(session, random)
    columns = list(compiled.columns["rows"])
    rows = [row for batch in batches for row in batch.to_pylist()]
    wanted = _outcome(lambda: interpret(compiled.raw, {"rows": rows}))
    found = _outcome(lambda: _run(session, [batch.select(columns) for batch in batches]))
    assert found == wanted or _as_written(found) == _as_written(wanted), (
        f"seed {seed}: {query.explain()}\n{found}\n{wanted}\n{session.metrics.adaptations}"
    )
    assert session.metrics.balanced or found == "overflow", f"seed {seed}: {session.metrics}"
    return decide


def check_bits(seed: int) -> RandomDecisions:
    """Compare the bits of a query with floats, on one thread, with those of a run that adapts to nothing."""
    random = Random(seed)
    _, compiled = float_query_of(seed % 5)
    columns = list(compiled.columns["rows"])
    batches = [batch.select(columns) for batch in float_batches_of(random)]
    decide = RandomDecisions(random)
    engine = pk.Engine(threads=1)
    session = compiled.open(engine, False, policy_of(decide, random.choice([1, 300, 5_000])))
    decide.columns = _begin(session, random)
    found = _outcome(lambda: _run(session, batches))
    quiet = compiled.open(engine, False, Policy(patience=1 << 60))
    wanted = _outcome(lambda: _run(quiet, batches))
    assert found == wanted, f"seed {seed}: {session.metrics.adaptations}"
    return decide


def _begin(session: Session, random: Random) -> tuple[str, ...]:
    """Begin with any way to share a table; return the columns that kernels read."""
    (stage,) = (stage for stage in session._stages.values() if isinstance(stage, WindowStage))
    if stage.program.keys and random.random() < 0.5:
        stage._shares = True
        ways: list[Sharing] = ["private", "partitioned"]
        if stage.program.atomic_states:
            ways.append("shared")
        stage.workers[0].sharing = random.choice(ways)
    return stage.program.columns


def _run(session: Session, batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    made = [out for batch in batches for out in session.push("rows", batch)]
    made += session.finish()
    return [row for out in made for row in out.to_pylist()]


def _as_written(outcome: list[str] | str) -> list[str]:
    """The same with 12 digits of each float: a mean of integers beyond 53 bits may differ from the definition's in the last."""
    return sorted(FLOATS.sub(lambda found: f"{float(found[0]):.12g}", row) for row in outcome)


def _outcome(run: Callable[[], list[dict[str, Any]]]) -> list[str] | str:
    try:
        return sorted(map(repr, run()))
    except pk.OverflowError:
        return "overflow"


@contextmanager
def quick_code() -> Iterator[None]:
    """Leave kernels at the level of their first code: both levels give the same bits, and one compiles in a quarter."""
    with patch.object(TieredKernel, "prepare", lambda kernel: None):
        yield


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=100_000, help="in all, with those of earlier runs")
    parser.add_argument("--progress", type=Path, default=Path(".chaos"), help="the file that counts them")
    given = parser.parse_args()
    done = int(given.progress.read_text()) if given.progress.exists() else 0
    changes = 0
    for seed in range(done, given.queries):
        with nullcontext() if seed // 100 % 10 == 0 else quick_code():
            changes += check(seed, seed // 100 % 5_000).asked
            changes += check_bits(seed).asked if seed % 20 == 0 else 0
        if (seed + 1) % FORGET_EVERY == 0 or seed + 1 == given.queries:
            forget()
            query_of.cache_clear()
            partial_file = given.progress.with_suffix(".new")
            partial_file.write_text(str(seed + 1))
            partial_file.replace(given.progress)
            sys.stdout.write(f"{seed + 1:,} queries, {changes:,} changes in this run\n")


if __name__ == "__main__":
    main()
