"""One step of a shard: load the saved state, process a batch's rows and marks, return results and the new state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.analysis.graph import has_sessions
from penstock.caches import CACHES
from penstock.compile import Compiled
from penstock.errors import StateError
from penstock.plan.nodes import Source
from penstock.plan.schema import sources_of
from penstock.runtime.metrics import Metrics
from penstock.runtime.session import METRICS, Session
from penstock.runtime.stage import START_OF_TIME
from penstock.spark.exchange import ShufflePayload
from penstock.spark.known_plans import without_plans
from penstock.spark.order import in_order, latest_first, ties
from penstock.spark.streaming.late_and_malformed import Aside, Silence
from penstock.spark.streaming.pane_row_counts import counted
from penstock.spark.streaming.shuffle_write import MARK, PANES, ROWS, Mark
from penstock.spark.streaming.update_mode import changed, if_ended_now
from penstock.spark.tasks import ENGINE, Query
from penstock.state.state import State
from penstock.state.state_table import read_scalars, scalars, with_fresh
from penstock.storage.access import Access

SPLITS, _HEARD = "streaming/splits", "streaming/heard"
SHARDS = "the number of shards"
# Spark stores the state of a shard as one value, so splitting it into chunks saves no writes.
_WHOLE = 1 << 62
COUNTS = ("read", "accepted", "late", "malformed", "filtered", "emitted", "ties", "partly_late")


@dataclass(frozen=True, slots=True)
class ShardStep:
    """The outcome of one batch in a shard: results, new state, row counts, watermark and late rows."""

    results: Sequence[pa.RecordBatch]
    state: State
    counts: Mapping[str, int]
    watermark: int
    late: Mapping[str, pa.Table] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shard:
    """The query that every shard runs.

    `by_value` names the streams whose rows have no position: rows of equal time are ordered by their values.
    `first` is the label of the shard that counts the rows dropped before the shuffle. `windows` are made of panes: tasks may
    send panes instead of rows. Panes count their rows in both cases, so the state is the same. With `updates`, open
    windows emit results too, whenever these have changed.
    """

    query: Query
    shards: int
    first: int
    by_value: frozenset[str] = frozenset()
    windows: tuple[str, ...] = ()
    updates: bool = False
    accesses: Mapping[str, Access] = field(default_factory=dict)

    @property
    def compiled(self) -> Compiled:
        return counted(self.query, self.windows)

    @property
    def identity(self) -> dict[str, str]:
        """Return the signature that saved state and offsets must match."""
        return {**_signature(self.query, self.windows), SHARDS: str(self.shards)}

    def step(
        self, label: int, saved: State | None, payloads: Iterable[ShufflePayload], now: int = 0
    ) -> ShardStep:
        """Run one batch of a shard. `now` is the processing time of the batch in microseconds."""
        known = self.query.known()
        run = _Run(self, self.compiled, self.compiled.open(ENGINE, bounded=False, known=known))
        run.session.pace()
        ordered = sorted(without_plans(payloads, self.query.report), key=lambda payload: payload.place)
        tables = run.tables(saved)
        before = read_scalars(tables[METRICS])
        run.session.load(with_fresh(tables, _panes(ordered)))
        latest, heard = (_of_splits(tables, name) for name in (SPLITS, _HEARD))
        silence = Silence(now, heard).begin(sources_of(run.compiled.plan))
        self.query.fill(run.session)
        aside = Aside(run.session).open(sources_of(run.compiled.plan))
        results = run.push(ordered, aside)
        results += run.advance(latest, _marks(ordered), label == self.first, silence)
        state = run.save(latest, heard)
        self.query.learn(run.session)
        counts = {name: getattr(run.session.metrics, name) - before.get(name, 0) for name in COUNTS}
        if self.updates:
            results = run.updates(tables, results)
            counts["emitted"] = sum(batch.num_rows for batch in results)
        return ShardStep(results, state, counts, run.session.watermark, aside.found)


def _marks(payloads: Iterable[ShufflePayload]) -> list[tuple[str, Mark]]:
    found = (
        (payload.name.removeprefix(MARK), payload) for payload in payloads if payload.name.startswith(MARK)
    )
    return [(stream, Mark.decoded(payload.payload)) for stream, payload in found]


def _panes(payloads: Iterable[ShufflePayload]) -> Iterator[tuple[str, pa.Table]]:
    return (
        (payload.name.removeprefix(PANES), payload.table)
        for payload in payloads
        if payload.name.startswith(PANES)
    )


@CACHES.results(most=32)
def _signature(query: Query, windows: tuple[str, ...]) -> Mapping[str, str]:
    """Return the signature of a query, cached because every batch uses it twice."""
    return counted(query, windows).signature


@dataclass(frozen=True, slots=True)
class _Run:
    shard: Shard
    compiled: Compiled
    session: Session

    def tables(self, saved: State | None) -> dict[str, pa.Table]:
        """Return the saved tables, or those of a new session."""
        if saved is None:
            return {name: kept.table for name, kept in self.session.save().items() if kept.table.num_rows}
        require_shards(saved, self.shard.identity)
        try:
            return saved.tables(self.shard.identity)
        except StateError as error:
            raise unfit(error) from None

    def updates(
        self, tables: Mapping[str, pa.Table], results: Sequence[pa.RecordBatch]
    ) -> list[pa.RecordBatch]:
        """Return the changes since `tables` were saved, among the open windows and `results`."""
        here = {name: kept.table for name, kept in self.session.save().items() if kept.table.num_rows}
        now = [*results, *if_ended_now(self.compiled, here)]
        found = changed(if_ended_now(self.compiled, tables), now, self.session.schema)
        batches: list[pa.RecordBatch] = found.combine_chunks().to_batches()
        return batches

    def save(self, latest: Mapping[tuple[str, str], int], heard: Mapping[tuple[str, str], int]) -> State:
        said = {SPLITS: latest, _HEARD: heard}
        kept = {
            name: scalars(**{json.dumps(split): time for split, time in sorted(times.items())})
            for name, times in said.items()
            if times
        }
        return State.of(self.shard.identity, {**self.session.save(), **kept}, _WHOLE)

    def push(self, payloads: Sequence[ShufflePayload], aside: Aside) -> list[pa.RecordBatch]:
        """Push the rows of every stream. Lateness is judged by the watermark before this batch."""
        results: list[pa.RecordBatch] = []
        for source in sources_of(self.compiled.plan):
            tables = [payload.table for payload in payloads if payload.name == ROWS + source.name]
            if tables:
                columns = self.compiled.columns[source.name]
                results += aside.push(source, columns, self._rows(source, pa.concat_tables(tables)))
        return results

    def _rows(self, source: Source, table: pa.Table) -> pa.Table:
        if source.name in self.shard.by_value:
            table = in_order(table, source.time.column, source.sequence)
            self.session.metrics.ties += ties(table, source.time.column, source.sequence)
        if has_sessions(self.compiled.program) and not source.time.implied:
            # Sessions admit a late row depending on earlier rows. This order makes the result independent of the order in the batch.
            table = latest_first(table, source.time.column)
        return table

    def advance(
        self,
        latest: dict[tuple[str, str], int],
        given: Sequence[tuple[str, Mark]],
        counting: bool,
        silence: Silence,
    ) -> list[pa.RecordBatch]:
        """Advance the watermark of every stream to the latest time of its slowest split, less the stream's lateness."""
        for stream, mark in given:
            if counting:
                self._count(stream, mark)
            if mark.latest is not None:
                split = stream, mark.split
                latest[split] = max(latest.get(split, START_OF_TIME), mark.latest)
                silence.hear(split)
        results: list[pa.RecordBatch] = []
        for source in sources_of(self.compiled.plan):
            reached = silence.reached(source, latest)
            if reached != START_OF_TIME:
                results += self.session.advance(max(reached - source.lateness, START_OF_TIME), source.name)
        return results + silence.followed(sources_of(self.compiled.plan), latest, self.session)

    def _count(self, stream: str, mark: Mark) -> None:
        if mark.accepted is None:
            self.session.skip(stream, mark.filtered, mark.malformed)
            return
        found = self.session.metrics
        found.read += mark.accepted + mark.filtered + mark.malformed
        found.accepted += mark.accepted
        found.filtered += mark.filtered
        found.malformed += mark.malformed


def _of_splits(tables: Mapping[str, pa.Table], name: str) -> dict[tuple[str, str], int]:
    found = read_scalars(tables[name]) if name in tables else {}
    return {_split(split): time for split, time in found.items()}


def unfit(error: StateError) -> StateError:
    """Add a remedy to the error about a state that does not match."""
    return StateError(f"{error}; go on with the query that wrote the checkpoint, or begin with a new one")


def require_shards(saved: State, identity: Mapping[str, str]) -> None:
    """Refuse the state of another number of shards: keys would be looked for in shards that do not have them."""
    before, now = saved.query.get(SHARDS), identity[SHARDS]
    if before not in (None, now):
        raise StateError(
            f"{SHARDS} was {before} and is {now}; continue with to_spark(tasks={before}), or begin with a new checkpoint"
        )


def _split(name: str) -> tuple[str, str]:
    stream, split = json.loads(name)
    return str(stream), str(split)


def totals(steps: Iterable[ShardStep]) -> Metrics:
    """Sum the row counts of all shards.

    >>> totals([]).balanced
    True
    """
    found = Metrics()
    for step in steps:
        for name, number in step.counts.items():
            setattr(found, name, getattr(found, name) + number)
    return found
