"""One step of a shard: go on from what was saved, take a batch's rows and marks, give results and what to save."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.compile import Compiled
from penstock.errors import StateError
from penstock.plan.nodes import Source
from penstock.plan.schema import sources_of
from penstock.runtime.flow import NEVER
from penstock.runtime.metrics import Metrics
from penstock.runtime.session import Session
from penstock.runtime.state.kept import marked, marks
from penstock.runtime.state.state import State
from penstock.spark.exchange import Parcel
from penstock.spark.order import in_order
from penstock.spark.streaming.edges import Aside, Silence
from penstock.spark.streaming.scatter import MARK, ROWS, Mark
from penstock.spark.tasks import ENGINE, Query

_SPLITS, _HEARD = "streaming/splits", "streaming/heard"
_SHARDS = "the number of shards"
COUNTS = ("read", "accepted", "late", "malformed", "filtered", "emitted")


@dataclass(frozen=True, slots=True)
class Step:
    """What one batch made of a shard: results, the state to go on from, and what became of the batch's rows."""

    results: Sequence[pa.RecordBatch]
    state: bytes
    counts: Mapping[str, int]
    watermark: int
    late: Mapping[str, pa.Table] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shard:
    """The query as every shard runs it.

    `by_value` names the streams whose rows have no position: those of one time are ordered by their values.
    `first` is the label of the shard that counts what never reached any.
    """

    query: Query
    shards: int
    first: int
    by_value: frozenset[str] = frozenset()

    def step(self, label: int, saved: bytes | None, parcels: Iterable[Parcel], now: int = 0) -> Step:
        """Run one batch of a shard, `now` being its time by the clock on the wall, in microseconds."""
        compiled = self.query.compiled()
        run = _Run(self, compiled, compiled.open(ENGINE, bounded=False))
        run.session.pace()
        latest, heard = ({}, {}) if saved is None else run.load(saved)
        silence = Silence(now, heard).begin(sources_of(compiled.plan))
        self.query.fill(run.session)
        before = run.session.metrics.counts
        ordered = sorted(parcels, key=lambda each: each.place)
        aside = Aside(run.session).open(sources_of(compiled.plan))
        results = run.push(ordered, aside)
        results += run.advance(latest, _marks(ordered), label == self.first, silence)
        state = run.save(latest, heard)
        counts = {name: getattr(run.session.metrics, name) - before[name] for name in COUNTS}
        return Step(results, state, counts, run.session.watermark, aside.found)


def _marks(parcels: Iterable[Parcel]) -> list[tuple[str, Mark]]:
    found = ((each.name.removeprefix(MARK), each) for each in parcels if each.name.startswith(MARK))
    return [(stream, Mark.decoded(each.payload)) for stream, each in found]


@dataclass(frozen=True, slots=True)
class _Run:
    shard: Shard
    compiled: Compiled
    session: Session

    @property
    def identity(self) -> dict[str, str]:
        return {**self.compiled.signature, _SHARDS: str(self.shard.shards)}

    def load(self, saved: bytes) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
        """Go on from saved state; tell how far time had come in every split, and when it was heard last."""
        try:
            tables = State.from_bytes(saved, "the state in the checkpoint").tables(self.identity)
        except StateError as error:
            raise StateError(
                f"{error}; go on with the query that wrote the checkpoint, or begin with a new one"
            ) from None
        self.session.load(tables)
        return _of_splits(tables, _SPLITS), _of_splits(tables, _HEARD)

    def save(self, latest: Mapping[tuple[str, str], int], heard: Mapping[tuple[str, str], int]) -> bytes:
        said = {_SPLITS: latest, _HEARD: heard}
        kept = {
            name: marks(**{json.dumps(split): time for split, time in sorted(times.items())})
            for name, times in said.items()
            if times
        }
        return State.of(self.identity, {**self.session.save(), **kept}).to_bytes()

    def push(self, parcels: Sequence[Parcel], aside: Aside) -> list[pa.RecordBatch]:
        """Push the rows of every stream, judged by how far time had come before this batch."""
        results: list[pa.RecordBatch] = []
        for source in sources_of(self.compiled.plan):
            tables = [each.table for each in parcels if each.name == ROWS + source.name]
            if tables:
                columns = self.compiled.columns[source.name]
                results += aside.push(source, columns, self._rows(source, pa.concat_tables(tables)))
        return results

    def _rows(self, source: Source, table: pa.Table) -> pa.Table:
        if source.name in self.shard.by_value:
            return in_order(table, source.time.column, source.sequence)
        return table

    def advance(
        self,
        latest: dict[tuple[str, str], int],
        given: Sequence[tuple[str, Mark]],
        counting: bool,
        silence: Silence,
    ) -> list[pa.RecordBatch]:
        """Move time on every stream as far as its slowest split has come, less the lateness it allows."""
        for stream, mark in given:
            if counting:
                self.session.skip(stream, mark.filtered, mark.malformed)
            if mark.latest is not None:
                split = stream, mark.split
                latest[split] = max(latest.get(split, NEVER), mark.latest)
                silence.hear(split)
        results: list[pa.RecordBatch] = []
        for source in sources_of(self.compiled.plan):
            reached = silence.reached(source, latest)
            if reached != NEVER:
                results += self.session.advance(max(reached - source.lateness, NEVER), source.name)
        return results + silence.followed(sources_of(self.compiled.plan), latest, self.session)


def _of_splits(tables: Mapping[str, pa.Table], name: str) -> dict[tuple[str, str], int]:
    found = marked(tables[name]) if name in tables else {}
    return {_split(split): time for split, time in found.items()}


def _split(name: str) -> tuple[str, str]:
    stream, split = json.loads(name)
    return str(stream), str(split)


def totals(steps: Iterable[Step]) -> Metrics:
    """Add up what became of rows in all shards.

    >>> totals([]).balanced
    True
    """
    found = Metrics()
    for step in steps:
        for name, number in step.counts.items():
            setattr(found, name, getattr(found, name) + number)
    return found
