"""Incremental runs over iterables of batches, or over the data bound to the streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from threading import Thread
from typing import TYPE_CHECKING, Any
from weakref import finalize

import pyarrow as pa

from penstock.api.background import Background, in_background
from penstock.api.execute import as_bound, bind_all, named_bindings, refuse_arrival
from penstock.api.input_readers import inputs_of, refuse_endless
from penstock.api.literals import shown, written_elsewhere
from penstock.api.live import Live, clock_of
from penstock.api.saving import Savable
from penstock.errors import BindingError, StateError
from penstock.plan.nodes import Source
from penstock.runtime.engine import Engine
from penstock.runtime.guarded_step import SharedStep
from penstock.sources.arrow import Once, is_frame
from penstock.sources.conform import gathered
from penstock.sources.rows import batch_of, is_rows
from penstock.state.state import State
from penstock.types.duration import Duration

if TYPE_CHECKING:
    from penstock.api.stream import Stream
    from penstock.runtime.metrics import Metrics


class Run(Savable):
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

    def explain(self) -> str:
        return self._live.explain()

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


class BackgroundRun(Run):
    """A run whose input a thread reads, one batch of each stream in turn, while results are taken."""

    def __init__(
        self, live: Live, inputs: Mapping[str, Iterator[Any]], final: bool, max_delay: Duration
    ) -> None:
        super().__init__(live, inputs, final)
        self._background = in_background(live, max_delay, None)
        self._background.expect_consumer()
        self._reader = RunReader(self._background, self._inputs, final)
        self._thread = Thread(target=self._reader.read, name="penstock-reader", daemon=True)
        self._thread.start()
        finalize(self, self._reader.stop).atexit = False

    def pushes(self) -> Iterator[list[pa.RecordBatch]]:
        """Yield results as they complete; then raise the error that ended the input, if there was one."""
        try:
            yield from ([batch] for batch in self._background)
        except StateError:  # the query has failed, and the error may have been raised in the reader
            self._thread.join()
            if self._reader.error is None:
                raise
        self._thread.join()
        if self._reader.error is not None:
            raise self._reader.error

    def state(self) -> State:
        """Return the state of the query after the last batch; before, it is not known which batches are in it."""
        if self._thread.is_alive():
            raise StateError(
                "a run with max_delay= reads ahead, so its state belongs to no batch; take all results first, "
                "or push batches with open(background=True)"
            )
        return super().state()


class RunReader:
    """Push one batch of each stream in turn, until all end or the run is dropped."""

    def __init__(self, background: Background, inputs: dict[str, Iterator[Any]], final: bool) -> None:
        self._background, self._inputs, self._final = background, inputs, final
        self._stopped = False
        self.error: BaseException | None = None

    def read(self) -> None:
        """Read all input; the error of an iterator ends the run after the batches before it."""
        try:
            self._read()
            self._background.shut(self._final and not self._stopped)
        except BaseException as error:  # noqa: BLE001 - raised where results are taken
            self.error = error
            self._background.shut(final=False)

    def _read(self) -> None:
        while self._inputs and not self._stopped:
            for name in list(self._inputs):
                batch = next(self._inputs[name], None)
                if batch is None:
                    del self._inputs[name]
                else:
                    self._background.take(name, batch)

    def stop(self) -> None:
        """Read no further batch."""
        self._stopped = True


def run(
    stream: Stream,
    batches: Any,
    sources: Mapping[str, Any],
    engine: Engine | None,
    state: object,
    final: bool,
    max_delay: Duration | None = None,
) -> Run:
    """Start an incremental run over iterables of batches, or over the data bound to the streams."""
    named = {source.name: source for source in stream.named.sources}
    given = _behind_history(stream, named_bindings(named, batches, sources))
    lazy = {name: _lazily(argument, named[name]) for name, argument in given.items()}
    live = Live(stream, engine, state, clock_of(stream, given))
    inputs = {name: iterator for name, iterator in lazy.items() if iterator is not None}
    rest = {name: argument for name, argument in given.items() if lazy[name] is None}
    inputs |= _bound_inputs(stream, live, rest, set(inputs), state is not None)
    # Several streams are interleaved batch by batch, so their batches are not merged.
    if len(inputs) == 1:
        inputs = {
            name: gathered(input_) if _is_there(given.get(name)) else input_
            for name, input_ in inputs.items()
        }
    return Run(live, inputs, final) if max_delay is None else BackgroundRun(live, inputs, final, max_delay)


def _behind_history(stream: Stream, given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert data passed to a stream with a history into its live side."""
    known = {name: data for name, data in stream.data.items() if hasattr(data, "followed_by")}
    sources = {source.name: source for source in stream.named.sources}
    return {
        name: _side(argument, known[name], sources[name]) if name in known else argument
        for name, argument in given.items()
    }


def _side(data: Any, history: Any, source: Source) -> Any:
    lazy = _lazily(data, source)
    return as_bound(data) if lazy is None else Once(lazy, history.schema)


def _is_there(data: Any) -> bool:
    """Return whether all batches are in memory, so that the next batch does not depend on a result."""
    return isinstance(data, list | tuple | pa.Table)


def _bound_inputs(
    stream: Stream, live: Live, given: Mapping[str, Any], fed: set[str], going_on: bool
) -> dict[str, Iterator[Any]]:
    """Read the streams that are not fed by an iterator from their bound data."""
    empty = {source.name: Once((), source.schema) for source in stream.named.sources if source.name in fed}
    refuse_arrival([source for source in stream.named.sources if source.name not in fed], "run over data")
    bound = bind_all(stream, None, {**given, **empty})
    if going_on:
        refuse_endless(bound)
    return {
        source.name: inputs_of(source, bound[source.name], stream.compiled(), live.metrics)
        for source in stream.named.sources
        if source.name not in fed
    }


def _lazily(data: Any, source: Source) -> Iterator[pa.RecordBatch] | None:
    """Return an iterator over an iterable of batches or rows; None for data in memory."""
    if (
        (is_rows(data) and len(data))
        or hasattr(data, "__arrow_c_stream__")
        or hasattr(data, "__arrow_c_array__")
        or hasattr(type(data), "batches")
        or is_frame(data)
    ):
        return None
    if not hasattr(type(data), "__iter__") or written_elsewhere(data):
        raise BindingError(
            f"{shown(data)} is neither Arrow data nor an iterable of record batches or rows; give a pyarrow table or reader, or a list of batches"
        )
    return (part for item in data for part in parts_of(item, source))


def parts_of(data: Any, source: Source) -> Iterable[pa.RecordBatch]:
    """Return a batch as it is, other data as batches."""
    if isinstance(data, pa.RecordBatch):
        return [data]
    if is_rows(data):
        return [batch_of(data, source.given, f"a batch of stream {source.name!r}")]
    return as_bound(data).batches()
