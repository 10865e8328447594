"""Incremental execution: batches in, batches out as the watermark passes windows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar
from weakref import ref

import pyarrow as pa

from penstock.api.backfill import Backfill
from penstock.api.execute import as_bound, engine_of, fill_tables, named_bindings, require_streams
from penstock.api.ingress import Ingress, following
from penstock.api.literals import whole
from penstock.api.saving import Savable, as_state
from penstock.api.source_options import instant, late_rows_warning, malformed_rows_warning, outside_level
from penstock.api.writer import Block, Writer, writable
from penstock.errors import BindingError, LateRowsWarning, MalformedRowsWarning, StateError
from penstock.runtime.engine import Engine
from penstock.runtime.guarded_step import SharedStep
from penstock.runtime.metrics import StateSize, measure_of
from penstock.runtime.stage import START_OF_TIME
from penstock.sources.bound import access_of
from penstock.sources.conform import gathered
from penstock.sources.live_files import Clock
from penstock.sources.malformed import Arrived
from penstock.sources.rows import batch_of, is_rows
from penstock.state.state import State

if TYPE_CHECKING:
    from penstock.api.native_queue import NativeQueue
    from penstock.api.stream import Stream
    from penstock.runtime.metrics import Metrics
    from penstock.runtime.session import Direct

P = ParamSpec("P")
R = TypeVar("R")
Departing = Callable[[], list[pa.RecordBatch]]


def _alone(method: Callable[Concatenate[Live, P], R]) -> Callable[Concatenate[Live, P], R]:
    """Serialise the calls of a `Live`, and reject calls after one that did not complete."""

    @wraps(method)
    def call(self: Live, /, *args: P.args, **kwargs: P.kwargs) -> R:
        # Warnings are issued after the call: if they raise, the call has completed.
        return self._step.run(method.__name__, lambda: method(self, *args, **kwargs), self.warn)

    return call


class Given(NamedTuple):
    """Rows of the needed columns, with their times, and when they arrived by the clock of the run."""

    stream: str
    batch: pa.RecordBatch
    arrived: float


class Live(Savable):
    """An open query: push batches, and receive the completed batches of the result.

    A batch is Arrow data, a data frame, a row as a dict, a list of such rows, a dict of lists or NumPy arrays, or NumPy
    records. Threads may share it: calls are serialised, and each call returns the results that it completed.
    After a call that failed or was interrupted, all further calls are rejected.

    >>> import pyarrow as pa, penstock as pk
    >>> events = pk.stream("events", {"t": "int64", "v": "int64"}, time="t")
    >>> with events.window(10).agg(total=pk.sum("v")).open() as live:
    ...     early = live.push(pa.record_batch({"t": [1, 2, 12], "v": [3, 4, 5]}))
    ...     late = live.finish()
    >>> [row for batch in early + late for row in batch.column("total").to_pylist()]
    [7, 5]
    """

    def __init__(
        self, stream: Stream, engine: Engine | None, state: object = None, clock: Clock | None = None
    ) -> None:
        require_streams(stream)
        self._clock = clock or Clock()
        self._sources = {source.name: source for source in stream.named.sources}
        self._compiled = stream.compiled()
        self._session = self._compiled.open(engine_of(engine), bounded=False)
        self._step = SharedStep(lambda: self._session.step.entries)
        if state is not None:
            self._session.load(as_state(state).tables(self._compiled.signature))
        fill_tables(stream, self._session)
        self._ingresses = {
            name: Ingress(
                source,
                self._compiled.columns[name],
                self._session,
                access=access_of(stream.data.get(name)),
            ).open(self._now())
            for name, source in self._sources.items()
        }
        self._histories: dict[str, Backfill] = {}
        self._owed: list[pa.RecordBatch] = []
        self._unwarned: dict[type[UserWarning], bool] = {LateRowsWarning: True, MalformedRowsWarning: True}
        self._sole = next(iter(self._ingresses.values())) if len(self._ingresses) == 1 else None
        self._timed = any(source.edges.moves_with_clock for source in self._sources.values())
        self.metrics.measure = measure_of(ref(self))

    @property
    def metrics(self) -> Metrics:
        """The metrics so far."""
        return self._session.metrics

    def explain(self) -> str:
        return self._compiled.explain_run(self._session)

    @property
    def watermark(self) -> int | None:
        """The watermark over all streams, in ticks; None until every stream has one."""
        reached = self._session.watermark
        return None if reached == START_OF_TIME else reached

    def push(self, batch: Any = None, /, **batches: Any) -> list[pa.RecordBatch]:
        """Push rows of the only stream, or of each stream by name. A row may be a dict: `live.push({"t": 1, "v": 2})`.

        A mapping whose keys are names of streams holds the data of those streams; any other is a row, or columns.
        """
        # Small pushes come often: this path of one batch makes few calls.
        return self._step.run("push", lambda: self._push_given(batch, batches), self.warn)

    def _push_given(self, batch: Any, batches: Mapping[str, Any]) -> list[pa.RecordBatch]:
        arrived, sole = self._clock.now(), self._sole
        if sole is not None and isinstance(batch, pa.RecordBatch) and not (batches or self._histories):
            made = sole.push(batch, round(arrived * 1e6))
        else:
            given = self.bindings(batch, batches)
            made = [made for name, argument in given for made in self._push(name, argument)]
        return self._timely(made, arrived) if made or self._timed or self._owed else made

    def bindings(self, batch: Any, batches: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        """Pair the arguments of a push with their streams."""
        if self._sole is not None and not batches and isinstance(batch, pa.RecordBatch):
            return ((self._sole.source.name, batch),)
        given = named_bindings(self._sources, batch, batches)
        if not given:
            raise BindingError(
                f"push takes a batch by the name of its stream ({', '.join(self._sources)}), and was given none"
            )
        return given.items()

    def _timely(self, made: list[pa.RecordBatch], arrived: float) -> list[pa.RecordBatch]:
        """Add what time completes, and measure the latency of results."""
        if self._timed:
            made += self._moved()
        if self._owed:
            made, self._owed = self._owed + made, []
        if made:
            self.metrics.latency.add(self._clock.now() - arrived)
        return made

    def direct(self) -> tuple[Ingress, Direct] | None:
        """The ingress of the only stream and the stage its rows go to, if native code may pass them on as they come."""
        ingress = self._sole
        if ingress is None or not ingress.plain or self._timed or self._histories:
            return None
        direct = self._session.direct(ingress.source.name)
        return None if direct is None else (ingress, direct)

    def settle(self, queue: NativeQueue, overlaps: bool) -> tuple[list[pa.RecordBatch], Departing | None]:
        """Do what the native loop of a background run stopped for, as one call.

        With `overlaps`, return also a function that computes more results while the loop goes on, before the next call.
        """
        return self._step.run("settle", lambda: self._settle(queue, overlaps))

    def _settle(self, queue: NativeQueue, overlaps: bool) -> tuple[list[pa.RecordBatch], Departing | None]:
        made, departure, arrived = queue.settle(overlaps)
        if made:
            self.metrics.latency.add(self._clock.now() - arrived)
        if departure is None:
            return made, None

        def depart() -> list[pa.RecordBatch]:
            found = queue.depart(departure)
            if found:
                self.metrics.latency.add(self._clock.now() - arrived)
            return found

        return made, depart

    def admit(self, name: str, data: Any) -> list[pa.RecordBatch]:
        """Convert rows of a stream to batches of the needed columns, small ones joined. Any thread may call this."""
        ingress, history = self._ingresses[name], self._histories.get(name)
        convert = ingress.conform if history is None else history.conformed
        return [convert(part) for part in _parts(data, ingress)]

    def stamp(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add the time of arrival; calls must follow the order of arrival."""
        return self._ingresses[name].stamp(batch)

    def stamps(self) -> dict[str, int]:
        """The arrival time of a row that arrives now, for streams that are stamped."""
        return {
            name: ingress.arrival_time()
            for name, ingress in self._ingresses.items()
            if ingress.source.edges.arrival is not None
        }

    @property
    def timed(self) -> bool:
        """Whether results may become complete without a push."""
        return self._timed

    @property
    def clock(self) -> Clock:
        """The clock by which streams are idle, and latency is measured."""
        return self._clock

    def is_stamped(self, name: str) -> bool:
        """Whether the time of a stream's rows is that of their arrival."""
        return self._sources[name].edges.arrival is not None

    def feed(self, given: Iterable[Given], stamps: Mapping[str, int] | None) -> list[pa.RecordBatch]:
        """Push rows that were admitted and stamped before, as one call, then move the clock to `stamps`, if given."""
        return self._step.run("feed", lambda: self._feed(given, stamps))

    def _feed(self, given: Iterable[Given], stamps: Mapping[str, int] | None) -> list[pa.RecordBatch]:
        now, made, oldest = self._now(), [], self._clock.now()
        for name, batch, arrived in given:
            oldest = min(oldest, arrived)
            made += self._put(name, batch, now)
        if self._timed and stamps is not None:
            made += self._moved(stamps)
        if self._owed:
            made, self._owed = self._owed + made, []
        if made:
            self.metrics.latency.add(self._clock.now() - oldest)
        return made

    def _put(self, name: str, batch: pa.RecordBatch, now: int) -> list[pa.RecordBatch]:
        ingress, history = self._ingresses[name], self._histories.get(name)
        return (
            ingress.put(batch, now)
            if history is None
            else ingress.take(history.following(Arrived(batch)), now)
        )

    def warn(self) -> None:
        """Warn once of late rows, and once of malformed rows, on streams without options for them."""
        metrics = self._session.metrics
        if self._unwarned and (metrics.late or metrics.malformed):
            self._warn_of_dropped_rows()

    def _warn_of_dropped_rows(self) -> None:
        metrics, sources = self._session.metrics, self._sources.values()
        for category in tuple(self._unwarned):
            if category is LateRowsWarning:
                message = late_rows_warning(sources, self._session.late_count, metrics.read)
            else:
                message = malformed_rows_warning(sources, metrics.malformed)
            # Removed before: of two threads one warns, and a warning that is an error is issued once, too.
            if message is not None and self._unwarned.pop(category, False):
                warnings.warn(message, category, outside_level())

    def _push(self, name: str, data: Any) -> list[pa.RecordBatch]:
        ingress, history, now = self._ingresses[name], self._histories.get(name), self._now()
        if history is None:
            return [made for part in _parts(data, ingress) for made in ingress.push(part, now)]
        arrived = (history.following(Arrived(history.conformed(part))) for part in _parts(data, ingress))
        return [made for arrival in arrived for made in ingress.take(arrival, now)]

    @_alone
    def follow(self, name: str, history: Backfill, read: bool) -> None:
        """Read a history to its end if `read`; later pushes follow it.

        The next push also returns the results of the history.
        """
        past = history.past(self._sources[name].on_bad) if read else ()
        made = [made for arrival in past for made in self._take(name, arrival)]
        self._owed += made
        self._histories[name] = history
        self._timed = True

    @_alone
    def take(self, name: str, given: pa.RecordBatch | Arrived) -> list[pa.RecordBatch]:
        """Push the output of a source: a batch, or an arrival with its split and malformed records."""
        return self._take(name, given)

    def _take(self, name: str, given: pa.RecordBatch | Arrived) -> list[pa.RecordBatch]:
        arrived = self._clock.now()
        if isinstance(given, pa.RecordBatch):
            return self._timely(self._push(name, given), arrived)
        self._timed = True  # splits may be idle
        return self._timely(self._ingresses[name].take(given, self._now()), arrived)

    @_alone
    def wait(self) -> list[pa.RecordBatch]:
        """Check the clock: it closes windows over arrival times, and streams idle for `idle_after=` no longer hold back time.

        Every push does this too; call it when no batch arrives.
        """
        return self._timely([], self._clock.now())

    def _moved(self, stamps: Mapping[str, int] | None = None) -> list[pa.RecordBatch]:
        """Advance the watermark to the clock, and past idle streams."""
        now, known = self._now(), stamps or {}
        made = [
            made
            for name, ingress in self._ingresses.items()
            for made in ingress.advance(now, known.get(name))
        ]
        return made + following(self._ingresses, now)

    def _now(self) -> int:
        return round(self._clock.now() * 1e6)

    @_alone
    def advance(self, time: object) -> list[pa.RecordBatch]:
        """Declare that no row before this time follows: a datetime, an ISO string, or ticks."""
        return self._timely(self._session.advance(self.tick(time)), self._clock.now())

    def queued(self, call: Callable[[], list[pa.RecordBatch]]) -> list[pa.RecordBatch]:
        """Run a call that waited in a queue. The clock moves no stream: rows behind it in the queue arrived before now."""
        timed, self._timed = self._timed, False
        try:
            return call()
        finally:
            self._timed |= timed

    def tick(self, time: object) -> int:
        """Convert a point in time to ticks."""
        clock = next(iter(self._sources.values())).time
        return instant(time, clock, "the time to advance to")

    def writer(self, capacity: int = 1024, stream: str | None = None) -> Writer:
        """Return preallocated columns of a stream to fill in place; `commit(n)` pushes the first n rows."""
        return self.writer_of(capacity, stream, self._commit)

    def writer_of(
        self, capacity: int, stream: str | None, commit: Callable[..., list[pa.RecordBatch]]
    ) -> Writer:
        """Return a writer that passes the name of its stream, its schema and its rows to a function."""
        name = self._sole.source.name if stream is None and self._sole is not None else stream
        if name not in self._ingresses:
            raise BindingError(
                f"writer(stream=) names the stream to write to, one of {', '.join(map(repr, self._ingresses))}"
            )
        ingress = self._ingresses[name]
        whole_rows = name in self._histories
        needed = ingress.source.given if whole_rows else ingress.needed
        schema = writable(
            pa.schema([field for field in needed if field.name in ingress.source.given.names]), name
        )
        return Writer(schema, whole(capacity, "capacity", 1), partial(commit, name, schema))

    @_alone
    def _commit(self, name: str, schema: pa.Schema, rows: int, *columns: Any) -> list[pa.RecordBatch]:
        arrived = self._clock.now()
        block = Block.of(schema, rows)
        block.append(rows, *columns)
        batch = self._ingresses[name].stamp(block.batch(0, rows))
        return self._timely(self._put(name, batch, self._now()), arrived)

    @_alone
    def finish(self) -> list[pa.RecordBatch]:
        """Declare the end of all input, and return the windows still open."""
        arrived = self._clock.now()
        return self._timely(self._session.finish(), arrived)

    @_alone
    def held(self) -> dict[str, StateSize]:
        """Measure the state of each operator."""
        return self._session.held()

    @_alone
    def state(self) -> State:
        """Return the state of the query, to resume from later; the query stays open."""
        if self._owed:
            raise StateError(
                "results of the history have not been taken yet, and would be lost; call wait() first"
            )
        return State.of(self._compiled.signature, self._session.save())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        close = getattr(self._session, "close", None)
        if close is not None:
            close()


def _parts(data: Any, ingress: Ingress) -> Iterable[pa.RecordBatch]:
    """Return a batch as it is, other data as batches; small ones are joined, as one task."""
    if isinstance(data, pa.RecordBatch):
        return (data,)
    if is_rows(data):
        return (batch_of(data, ingress.source.given, f"a batch of stream {ingress.source.name!r}"),)
    return gathered(as_bound(data).batches(), singly=0)


def clock_of(stream: Stream, given: Mapping[str, Any]) -> Clock | None:
    """Return the clock of the live data; idleness is measured by the same clock."""
    clocks = (getattr(argument, "clock", None) for argument in [*given.values(), *stream.data.values()])
    return next((clock for clock in clocks if isinstance(clock, Clock)), None)


def open_live(stream: Stream, engine: Engine | None, state: object, clock: Clock | None = None) -> Live:
    """Open a query for pushing. Read the history of a stream now, unless a state includes it."""
    live = Live(stream, engine, state, clock or clock_of(stream, {}))
    for name, data in stream.data.items():
        if isinstance(data, Backfill):
            live.follow(name, data, read=state is None)
    return live
