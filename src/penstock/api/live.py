"""Incremental execution: batches in, batches out as the watermark passes windows."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import pyarrow as pa

from penstock.api.arguments import shown, written_elsewhere
from penstock.api.backfill import Backfill
from penstock.api.execute import as_bound, bind_all, engine_of, fill_tables, named_bindings, require_streams
from penstock.api.ingress import Ingress, following
from penstock.api.input_readers import inputs_of, refuse_endless
from penstock.api.late_and_malformed import late_rows_message, outside_level, warn_of_malformed_rows
from penstock.api.stream_time import instant
from penstock.errors import BindingError, LateRowsWarning, StateError
from penstock.runtime.engine import Engine
from penstock.runtime.guarded_step import SharedStep
from penstock.runtime.stage import START_OF_TIME
from penstock.sources.arrow import Once, is_frame
from penstock.sources.bound import access_of
from penstock.sources.coalesce_batches import gathered
from penstock.sources.live_files import Clock
from penstock.sources.malformed import Arrived
from penstock.state.state import State

if TYPE_CHECKING:
    from penstock.api.stream import Stream
    from penstock.runtime.metrics import Metrics

P = ParamSpec("P")
R = TypeVar("R")


def _alone(method: Callable[Concatenate[Live, P], R]) -> Callable[Concatenate[Live, P], R]:
    """Serialise the calls of a `Live`, and reject calls after one that did not complete."""

    @wraps(method)
    def call(self: Live, /, *args: P.args, **kwargs: P.kwargs) -> R:
        # Warnings are issued after the call: if they raise, the call has completed.
        return self._step.run(
            method.__name__, lambda: method(self, *args, **kwargs), self._warn_of_dropped_rows
        )

    return call


class Live:
    """An open query: push batches, and receive the completed batches of the result.

    Threads may share it: calls are serialised, and each call returns the results that it completed.
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
        self._gates = {
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
        self._warned = self._warned_of_malformed = False

    @property
    def metrics(self) -> Metrics:
        """The metrics so far."""
        return self._session.metrics

    @property
    def watermark(self) -> int | None:
        """The watermark over all streams, in ticks; None until every stream has one."""
        reached = self._session.watermark
        return None if reached == START_OF_TIME else reached

    @_alone
    def push(self, batch: Any = None, /, **batches: Any) -> list[pa.RecordBatch]:
        """Push a batch of the only stream, or one of each stream by name."""
        given = named_bindings(self._sources, batch, batches)
        if not given:
            raise BindingError(
                f"push takes a batch by the name of its stream ({', '.join(self._sources)}), and was given none"
            )
        return self._push_all(given)

    def _push_all(self, given: Mapping[str, Any]) -> list[pa.RecordBatch]:
        made = [made for name, each in given.items() for made in self._push(name, each)]
        made += self._moved()
        return self._taken() + made

    def _warn_of_dropped_rows(self) -> None:
        """Warn once of late rows, and once of malformed rows, on streams without options for them."""
        self._warn_of_late_rows()
        if not self._warned_of_malformed:
            dropped = self._session.metrics.malformed
            self._warned_of_malformed = warn_of_malformed_rows(self._sources.values(), dropped)

    def _warn_of_late_rows(self) -> None:
        """Warn once of late rows on streams without options for them."""
        if self._warned or not self._session.metrics.late:
            return
        unsaid = [name for name, source in self._sources.items() if not source.edges.expects_late_rows]
        late = {name: count for name in unsaid if (count := self._session.late_count(name))}
        if late:
            self._warned = True
            warnings.warn(late_rows_message(late, self.metrics.read), LateRowsWarning, outside_level())

    def _push(self, name: str, data: Any) -> list[pa.RecordBatch]:
        gate, history, now = self._gates[name], self._histories.get(name), self._now()
        if history is None:
            return [made for part in _parts(data) for made in gate.push(part, now)]
        arrived = (history.following(Arrived(history.conformed(part))) for part in _parts(data))
        return [made for each in arrived for made in gate.take(each, now)]

    @_alone
    def follow(self, name: str, history: Backfill, read: bool) -> None:
        """Read a history to its end if `read`; later pushes follow it.

        The next push also returns the results of the history.
        """
        past = history.past(self._sources[name].on_bad) if read else ()
        made = [made for each in past for made in self._take(name, each)]
        self._owed += made
        self._histories[name] = history

    def _taken(self) -> list[pa.RecordBatch]:
        owed, self._owed = self._owed, []
        return owed

    @_alone
    def take(self, name: str, given: pa.RecordBatch | Arrived) -> list[pa.RecordBatch]:
        """Push the output of a source: a batch, or an arrival with its split and malformed records."""
        return self._take(name, given)

    def _take(self, name: str, given: pa.RecordBatch | Arrived) -> list[pa.RecordBatch]:
        if isinstance(given, pa.RecordBatch):
            return self._push_all({name: given})
        made = self._gates[name].take(given, self._now()) + self._moved()
        return self._taken() + made

    @_alone
    def wait(self) -> list[pa.RecordBatch]:
        """Check the clock: splits and streams idle for `idle_after=` no longer hold back the watermark.

        Every push does this too; call it when no batch arrives.
        """
        made = self._moved()
        return self._taken() + made

    def _moved(self) -> list[pa.RecordBatch]:
        """Advance the watermark past idle streams."""
        now = self._now()
        made = [made for gate in self._gates.values() for made in gate.advance(now)]
        return made + following(self._gates, now)

    def _now(self) -> int:
        return round(self._clock.now() * 1e6)

    @_alone
    def advance(self, time: object) -> list[pa.RecordBatch]:
        """Declare that no row before this time follows: a datetime, an ISO string, or ticks."""
        clock = next(iter(self._sources.values())).time
        reached = instant(time, clock, "the time to advance to")
        made = self._session.advance(reached)
        return self._taken() + made

    @_alone
    def finish(self) -> list[pa.RecordBatch]:
        """Declare the end of all input, and return the windows still open."""
        made = self._session.finish()
        return self._taken() + made

    @_alone
    def state(self) -> State:
        """Return the state of the query, to resume from later; the query stays open."""
        if self._owed:
            raise StateError(
                "results of the history have not been taken yet, and would be lost; call wait() first"
            )
        return State.of(self._compiled.signature, self._session.save())

    def save(
        self,
        path: str | PathLike[str],
        *,
        storage_options: Mapping[str, object] | None = None,
        filesystem: object = None,
    ) -> None:
        """Write the state of the query to a file, to resume with `open(state=path)`. The path may be a URI, as in `scan`."""
        self.state().save(path, storage_options=storage_options, filesystem=filesystem)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        close = getattr(self._session, "close", None)
        if close is not None:
            close()


class Run:
    """The result batches of an incremental run; `.metrics` are those so far."""

    def __init__(self, live: Live, inputs: Mapping[str, Iterator[Any]], final: bool) -> None:
        self._live = live
        self._inputs, self._final = dict(inputs), final
        self._ready: deque[pa.RecordBatch] = deque()
        self._output = self._results()
        self._step = SharedStep(lambda: None)  # the open query tracks what an error left changed

    @property
    def metrics(self) -> Metrics:
        """The metrics so far."""
        return self._live.metrics

    @property
    def watermark(self) -> int | None:
        """The watermark over all streams, in ticks; None until every stream has one."""
        return self._live.watermark

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return self._step.run("next", lambda: next(self._output))

    def state(self) -> State:
        """Return the state of the query, to resume from: run with `final=False`, or stop before the end."""
        self._step.check()
        if self._ready:
            raise StateError(
                f"{len(self._ready)} batches of results have not been taken yet, and would be lost; take them first"
            )
        return self._live.state()

    def save(
        self,
        path: str | PathLike[str],
        *,
        storage_options: Mapping[str, object] | None = None,
        filesystem: object = None,
    ) -> None:
        """Write the state of the query to a file, to resume with `run(..., state=path)`. The path may be a URI, as in `scan`."""
        self.state().save(path, storage_options=storage_options, filesystem=filesystem)

    def _results(self) -> Iterator[pa.RecordBatch]:
        for made in self.pushes():
            self._ready.extend(made)
            while self._ready:
                yield self._ready.popleft()

    def pushes(self) -> Iterator[list[pa.RecordBatch]]:
        """Push one batch of each stream in turn until all end; yield the results of each push, also if empty."""
        while self._inputs:
            for name in list(self._inputs):
                batch = next(self._inputs[name], None)
                if batch is None:
                    del self._inputs[name]
                else:
                    yield self._live.take(name, batch)
        if self._final:
            yield self._live.finish()


def run(
    stream: Stream,
    batches: Any,
    sources: Mapping[str, Any],
    engine: Engine | None,
    state: object,
    final: bool,
) -> Run:
    """Start an incremental run over iterables of batches, or over the data bound to the streams."""
    named = {source.name: source for source in stream.named.sources}
    given = _behind_history(stream, named_bindings(named, batches, sources))
    lazy = {name: _lazily(each) for name, each in given.items()}
    live = Live(stream, engine, state, _clock_of(stream, given))
    inputs = {name: each for name, each in lazy.items() if each is not None}
    rest = {name: each for name, each in given.items() if lazy[name] is None}
    inputs |= _bound_inputs(stream, live, rest, set(inputs), state is not None)
    # Several streams are interleaved batch by batch, so their batches are not merged.
    if len(inputs) == 1:
        inputs = {
            name: gathered(each) if _is_there(given.get(name)) else each for name, each in inputs.items()
        }
    return Run(live, inputs, final)


def _behind_history(stream: Stream, given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert data passed to a stream with a history into its live side."""
    known = {name: each for name, each in stream.data.items() if hasattr(each, "followed_by")}
    return {name: _side(each, known[name]) if name in known else each for name, each in given.items()}


def _side(data: Any, history: Any) -> Any:
    lazy = _lazily(data)
    return as_bound(data) if lazy is None else Once(lazy, history.schema)


def _is_there(data: Any) -> bool:
    """Return whether all batches are in memory, so that the next batch does not depend on a result."""
    return isinstance(data, list | tuple | pa.Table)


def _bound_inputs(
    stream: Stream, live: Live, given: Mapping[str, Any], fed: set[str], going_on: bool
) -> dict[str, Iterator[Any]]:
    """Read the streams that are not fed by an iterator from their bound data."""
    empty = {source.name: Once((), source.schema) for source in stream.named.sources if source.name in fed}
    bound = bind_all(stream, None, {**given, **empty})
    if going_on:
        refuse_endless(bound)
    return {
        source.name: inputs_of(source, bound[source.name], stream.compiled(), live.metrics)
        for source in stream.named.sources
        if source.name not in fed
    }


def _clock_of(stream: Stream, given: Mapping[str, Any]) -> Clock | None:
    """Return the clock of the live data; idleness is measured by the same clock."""
    clocks = (getattr(each, "clock", None) for each in [*given.values(), *stream.data.values()])
    return next((clock for clock in clocks if isinstance(clock, Clock)), None)


def _lazily(data: Any) -> Iterator[pa.RecordBatch] | None:
    """Return an iterator over an iterable of batches; None for Arrow data."""
    if (
        hasattr(data, "__arrow_c_stream__")
        or hasattr(data, "__arrow_c_array__")
        or hasattr(type(data), "batches")
        or is_frame(data)
    ):
        return None
    if not hasattr(type(data), "__iter__") or written_elsewhere(data):
        raise BindingError(
            f"{shown(data)} is neither Arrow data nor an iterable of record batches; give a pyarrow table or reader, or a list of batches"
        )
    return (part for each in data for part in _parts(each))


def _parts(data: Any) -> Iterable[pa.RecordBatch]:
    """Return a batch as it is, other data as batches."""
    return [data] if isinstance(data, pa.RecordBatch) else as_bound(data).batches()


def open_live(stream: Stream, engine: Engine | None, state: object, clock: Clock | None = None) -> Live:
    """Open a query for pushing. Read the history of a stream now, unless a state includes it."""
    live = Live(stream, engine, state, clock or _clock_of(stream, {}))
    for name, each in stream.data.items():
        if isinstance(each, Backfill):
            live.follow(name, each, read=state is None)
    return live


def as_state(state: object) -> State:
    """Load saved state from a path, bytes, or a State."""
    match state:
        case State():
            return state
        case bytes() | bytearray() | memoryview():
            return State.from_bytes(bytes(state))
        case str() | PathLike():
            return State.load(state)
        case _:
            raise StateError(f"state= takes a path, bytes or a pk.State, not a {type(state).__name__}")
