"""Code that runs in executors: rows in, results or shuffle payloads out, through the same engine as everywhere.

Everything here is a plain value that Spark can serialise, called with an iterator of batches. A worker process
decodes and compiles a query once for all its tasks.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.caches import CACHES
from penstock.compile import Compiled, compile_plan, objects_of, offer_objects
from penstock.ir.nodes import Signals
from penstock.plan.codec import Function, decode, encode
from penstock.plan.nodes import Plan, Source
from penstock.plan.schema import schema_of, sources_of, time_of
from penstock.runtime.adapt.known_plan import KnownPlan
from penstock.runtime.buffers import indices
from penstock.runtime.engine import Engine
from penstock.runtime.memory.budgeted_session import BudgetedSession
from penstock.runtime.session import Session
from penstock.spark.exchange import PAYLOAD_ROWS, ShufflePayload, packed, unpacked
from penstock.spark.known_plans import Report, known_plans, plans_sent, without_plans
from penstock.spark.order import in_order
from penstock.spark.rows import StreamRows, rows_of_frame, rows_of_part, run_through
from penstock.spark.skew import Hot, key_hashes_of, shares_of
from penstock.spark.slice_boundaries import results_in, rows_within
from penstock.spark.slices import Neighbours, Part, from_json, in_turn
from penstock.spark.split_plan import cut
from penstock.spark.task_memory import UNBOUNDED, TaskMemory, settle
from penstock.spark.time_ranges import TimeRanges, one_shard_at_a_time
from penstock.spark.types import deliverer, never_null
from penstock.state.format import decode_table
from penstock.state.state_table import merged, shares
from penstock.storage.access import Access

Named = tuple[tuple[str, bytes], ...]
# Spark assigns one core to a task.
ENGINE = Engine(threads=1)


@dataclass(frozen=True, slots=True)
class Query:
    """A serialisable query: its plan as text, its Python functions, the object code of its kernels, and its tables."""

    text: str
    functions: tuple[Function, ...] = ()
    objects: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    tables: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    memory: TaskMemory = UNBOUNDED
    plans: str = field(default="", repr=False, compare=False)  # what earlier runs found, from the driver
    report: Report = field(default=None, repr=False, compare=False)  # takes what a task finds to the driver

    @staticmethod
    def of(
        plan: Plan,
        objects: Named = (),
        tables: Named = (),
        memory: TaskMemory | None = None,
        report: Report = None,
    ) -> Query:
        text, functions = encode(plan)
        plans = known_plans().encoded(text)
        return Query(text, functions, objects, tables, memory or UNBOUNDED, plans, report)

    def compiled(self) -> Compiled:
        return _compiled(self.text, self.functions, self.objects)

    def open(self) -> Session:
        """Open a session over bounded input, with its tables filled."""
        session = self.compiled().open(ENGINE, bounded=True, known=self.known())
        self.fill(session)
        return session

    def known(self) -> dict[str, KnownPlan]:
        """The plans of earlier tasks of this query: those of this process, or those of the driver, if they rest on more rows."""
        if self.plans:
            known_plans().take(self.plans)
        return known_plans().of(self.text)

    def learn(self, session: Session) -> str:
        """Keep the plans that a task ended with, report them to the driver, and return them to send them on."""
        found = known_plans().learn(self.text, session.known_plans)
        if found and self.report is not None:
            self.report.add((found,))
        return found

    def open_within(self) -> BudgetedSession:
        """Open a session over bounded input that keeps to the memory of a task, with its tables filled."""
        session = self.compiled().open_within(ENGINE, self.memory.budget(), self.known())
        self.fill(session)
        return session

    def fill(self, session: Session) -> None:
        """Fill the tables of a session."""
        for name, payload in self.tables:
            session.fill(name, decode_table(payload, f"the table {name!r}").to_batches())


@CACHES.results(most=32)
def _compiled(text: str, functions: tuple[Function, ...], objects: tuple[tuple[str, bytes], ...]) -> Compiled:
    offer_objects(dict(objects))
    return compile_plan(decode(text, functions))


@CACHES.results(most=32)
def shipped(plan: Plan) -> Named:
    """Compile the kernels to ship with tasks. A worker with a different processor ignores them and compiles its own."""
    return tuple(sorted(objects_of(compile_plan(plan)).items()))


def run_task(
    compiled: Compiled, tables: Named, memory: TaskMemory, zone: str | None, report: Report = None
) -> RunTask:
    """Return the task that runs a whole query over any part of its files."""
    plan = compiled.plan
    query = Query.of(plan, shipped(plan), tables, memory, report)
    implied = any(source.time.implied for source in sources_of(plan))
    if not implied or not any(isinstance(obj.body, Signals) for obj in compiled.program.objects):
        return RunTask(query, zone)
    # Signals by positions begin at the first row of a stream, and a slice at another.
    made = cut(compiled, {})
    senders = {name: Query.of(sender.plan) for name, sender in made.senders.items()}
    stored = Query.of(made.behind, shipped(made.behind), tables, memory, report)
    return RunTask(stored, zone, regular=RegularSlices(query, senders))


# --- running ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunTask:
    """Run the whole query and convert results to Spark's types. For a time slice, keep only the results inside it.

    `ordered`: rows come in time order, with watermarks. `regular`: the query has times of regular streams in columns.
    """

    query: Query
    zone: str | None
    ordered: bool = False
    regular: RegularSlices | None = None

    @property
    def given(self) -> Query:
        """Return the query as the user wrote it."""
        return self.query if self.regular is None else self.regular.query

    @property
    def compiled(self) -> Compiled:
        return self.query.compiled()

    def __call__(
        self, task: int, rows: Iterable[StreamRows], part: Part | None = None
    ) -> Iterator[pa.RecordBatch]:
        plan = self.compiled.plan
        deliver = deliverer(schema_of(plan), self.zone, never_null(plan))
        chosen = results_in(part, self.compiled)
        session = self.query.open_within()
        if self.ordered or (part is not None and in_turn(part)):
            session.trust_watermarks()
        for batch in self.results(session, rows):
            yield deliver(chosen(batch))

    def results(self, session: BudgetedSession, rows: Iterable[StreamRows]) -> Iterator[pa.RecordBatch]:
        """Push rows, finish, and yield results as they become complete."""
        yield from run_through(session, rows)
        for batches in session.finishing():
            yield from batches
        self.query.learn(session)


@dataclass(frozen=True, slots=True)
class RegularSlices:
    """Rows of regular time for a query that reads times from columns: `query` as it was given, and what adds the columns."""

    query: Query
    senders: Mapping[str, Query]

    def rows(self, part: Part, others: Neighbours) -> Iterator[StreamRows]:
        """Read the rows of a task, with their times."""
        sessions = {name: query.open() for name, query in self.senders.items()}
        for rows in rows_within(self.query.compiled(), part, others):
            plain = replace(rows, watermark=None)
            yield StreamRows(
                rows.stream, list(run_through(sessions[rows.stream], [plain])), None, rows.watermark
            )


@dataclass(frozen=True, slots=True)
class FoldTask:
    """Aggregate rows into panes, and send the partial aggregates to the tasks that merge them.

    `keys` holds the positions of the keys that partition the later work; it may be empty.
    """

    query: Query
    keys: tuple[int, ...]
    shards: int

    @property
    def compiled(self) -> Compiled:
        return self.query.compiled()

    def __call__(
        self, task: int, rows: Iterable[StreamRows], part: Part | None = None
    ) -> Iterator[pa.RecordBatch]:
        session = self.query.open()
        for row in rows:
            if row.first_row is not None:
                session.number_from(row.stream, row.first_row)
            session.push(row.stream, *row.batches)
        cells = (
            ShufflePayload.of(shard, task, 0, name, table)
            for shard, tables in shares(session.save(), self.keys, self.shards).items()
            for name, table in tables.items()
        )
        yield from packed(chain(cells, plans_sent(self.query.learn(session), task % self.shards, task)))


@dataclass(frozen=True, slots=True)
class Assemble:
    """Merge the partial aggregates of `FoldTask` and finish the query."""

    query: Query
    zone: str | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: dict[tuple[int, int], dict[str, pa.Table]] = {}
        for payload in without_plans(unpacked(batches)):
            parts.setdefault((payload.shard, payload.task), {})[payload.name] = payload.table
        if not parts:
            return
        compiled = self.query.compiled()
        deliver = deliverer(schema_of(compiled.plan), self.zone, never_null(compiled.plan))
        session = self.query.open()
        session.load(merged(parts[key] for key in sorted(parts)))
        yield from map(deliver, session.finish())


@dataclass(frozen=True, slots=True)
class Send:
    """Send rows to the shards of their keys or times, reduced to what the query reads."""

    senders: Mapping[str, tuple[Query, int]]
    shards: int
    hot: Hot | None = None
    ranges: TimeRanges | None = None

    def sample(self, stream: str, parts: Iterable[Part]) -> Iterator[np.ndarray]:
        """Yield the key hashes of the first rows of each part."""
        query, keys = self.senders[stream]
        for part in parts:
            session = query.open()
            for rows in islice(rows_of_part(query.compiled(), part), 1):
                for batch in run_through(session, [StreamRows(stream, rows.batches, rows.first_row)]):
                    yield key_hashes_of(pa.Table.from_batches([batch]), keys)

    def compiled_for(self, stream: str) -> Compiled:
        return self.senders[stream][0].compiled()

    def __call__(
        self, task: int, rows: Iterable[StreamRows], part: Part | None = None
    ) -> Iterator[pa.RecordBatch]:
        sessions: dict[str, Session] = {}
        number = 0
        for row in rows:
            if row.stream not in sessions:
                sessions[row.stream] = self.senders[row.stream][0].open()
            plain = StreamRows(row.stream, row.batches, row.first_row)
            made = list(run_through(sessions[row.stream], [plain]))
            payloads = list(self._payloads(task, number, row.stream, made))
            number += len(payloads)
            yield from packed(payloads)

    def _payloads(
        self, task: int, number: int, stream: str, batches: list[pa.RecordBatch]
    ) -> Iterator[ShufflePayload]:
        shards = range(self.shards) if self.ranges is None else self.ranges.labels
        for batch in batches:
            for begin in range(0, batch.num_rows, PAYLOAD_ROWS):
                table = pa.Table.from_batches([batch.slice(begin, PAYLOAD_ROWS)])
                own, everywhere = self._shares(stream, table)
                for shard, rows in zip(shards, own, strict=True):
                    if rows.num_rows:
                        yield ShufflePayload.of(shard, task, number, stream, rows)
                        number += 1
                # Copies share one number: when several shards fall into one partition, `Receive` keeps one copy.
                for shard in range(self.shards if everywhere is not None else 0):
                    yield ShufflePayload.of(shard, task, number, stream, everywhere)
                number += everywhere is not None

    def _shares(self, stream: str, table: pa.Table) -> tuple[list[pa.Table], pa.Table | None]:
        """Return the rows of each shard, and those for all shards."""
        query, keys = self.senders[stream]
        if self.ranges is None:
            return shares_of(self.hot, stream, table, keys, self.shards)
        return self.ranges.divided(table, time_of(query.compiled().plan).column), None


@dataclass(frozen=True, slots=True)
class Receive:
    """Run the query over the rows that `Send` sent to this task.

    `sorted_by_value` names the streams without positions, whose rows of equal time are ordered by their values. Of
    `ranges` of time, only the results inside the own one are kept.
    """

    query: Query
    zone: str | None
    sorted_by_value: frozenset[str] = frozenset()
    ranges: TimeRanges | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.ranges is None:
            yield from self._results(_each_once(unpacked(batches)), None)
            return
        for shard, payloads in one_shard_at_a_time(unpacked(batches)):
            yield from self._results(payloads, self.ranges.part(shard))

    def _results(self, payloads: Iterator[ShufflePayload], part: Part | None) -> Iterator[pa.RecordBatch]:
        first = next(payloads, None)
        if first is None:
            return
        run = RunTask(self.query, self.zone)
        plan = run.compiled.plan
        deliver = deliverer(schema_of(plan), self.zone, never_null(plan))
        chosen = results_in(part, run.compiled)
        session = self.query.open_within()
        for source in sources_of(plan):
            session.arrange(source.name, self._arrange(source))
        for batch in run.results(session, map(_placed, chain([first], payloads))):
            yield deliver(chosen(batch))

    def _arrange(self, source: Source) -> Callable[[pa.Table], pa.Table]:
        """Return how rows of a stream are ordered: by value, or as they were sent, whatever the order of delivery."""
        if source.name in self.sorted_by_value:
            return lambda rows: in_order(rows.drop_columns([_PLACE]), source.time.column, source.sequence)
        return _as_sent


_PLACE = "place of a payload"  # a hidden column: the task and part of a row's payload


def _each_once(payloads: Iterable[ShufflePayload]) -> Iterator[ShufflePayload]:
    """Leave out further copies of a payload, which several shards of one task have."""
    seen: set[tuple[int, int, str]] = set()
    for payload in payloads:
        place = *payload.place, payload.name
        if place not in seen:
            seen.add(place)
            yield payload


def _placed(payload: ShufflePayload) -> StreamRows:
    """Return the rows of a payload with their place."""
    table = payload.table.combine_chunks()
    place = pa.array(np.full(table.num_rows, (payload.task << 32) | payload.part))
    return StreamRows(payload.name, table.append_column(_PLACE, place).to_batches())


def _as_sent(rows: pa.Table) -> pa.Table:
    """Order rows by their place. Rows of one payload keep their order."""
    places = rows.column(_PLACE).to_numpy()
    rest = rows.drop_columns([_PLACE])
    return (
        rest if (places[1:] >= places[:-1]).all() else rest.take(indices(np.argsort(places, kind="stable")))
    )


# --- as Spark calls them ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OverParts:
    """Spark callable over multiples of task numbers by `step`: reads the files of each task."""

    work: Any
    parts: bytes
    accesses: Mapping[str, Access] = field(default_factory=dict)
    step: int = 1

    @staticmethod
    def of(
        work: Any,
        parts: Sequence[dict[str, object]],
        accesses: Mapping[str, Access] | None = None,
        step: int = 1,
    ) -> OverParts:
        """Encode parts as a JSON list of JSON texts: a task decodes its own part, and others on demand."""
        texts = json.dumps([json.dumps(part) for part in parts])
        return OverParts(work, zlib.compress(texts.encode()), accesses or {}, step)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for place in (place for batch in batches for place in batch.column(0).to_pylist()):
            number = place // self.step
            texts = json.loads(zlib.decompress(self.parts))
            part = from_json(json.loads(texts[number]), self.accesses)
            yield from work_on_part(self.work, part, Neighbours(texts, number, self.accesses))
        settle()


def work_on_part(work: Any, part: Part, others: Neighbours) -> Iterator[pa.RecordBatch]:
    """Run a task over its part, and read rows of other tasks where the boundaries of the part need them."""
    made: Iterator[pa.RecordBatch] = work(others.number, rows_for(work, part, others), part)
    return made


def rows_for(work: Any, part: Part, others: Neighbours) -> Iterator[StreamRows]:
    """Read the rows of a task. Before a shuffle, each stream has a separate plan."""
    if isinstance(work, RunTask) and work.regular is not None:
        yield from work.regular.rows(part, others)
        return
    if not isinstance(work, Send):
        yield from rows_within(work.compiled, part, others)
        return
    for stream in dict.fromkeys(piece.stream for piece in part.pieces):
        own = Part(tuple(piece for piece in part.pieces if piece.stream == stream))
        yield from rows_of_part(work.compiled_for(stream), own)


@dataclass(frozen=True, slots=True)
class OverFrame:
    """Spark callable over the rows of a DataFrame, in time order if it was sorted."""

    work: Any
    stream: str
    ordered: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 - runs inside a task of Spark

        context = TaskContext.get()
        compiled = self.work.compiled_for(self.stream) if isinstance(self.work, Send) else self.work.compiled
        source = next(source for source in sources_of(compiled.plan) if source.name == self.stream)
        rows = rows_of_frame(self.stream, source, compiled.columns[self.stream], batches, self.ordered)
        task = 0 if context is None else context.partitionId()
        made: Iterator[pa.RecordBatch] = self.work(task, rows, None)
        return made
