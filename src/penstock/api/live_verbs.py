"""The verbs that run a query while its rows come."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import pyarrow as pa

from penstock.api.literals import flag
from penstock.errors import BindingError
from penstock.types.duration import Duration

if TYPE_CHECKING:
    from penstock.api.background import Background
    from penstock.api.live import Live
    from penstock.api.running import Run
    from penstock.api.stream import Stream
    from penstock.runtime.engine import Engine
    from penstock.runtime.metrics import Metrics


class LiveVerbs:
    """The verbs of a stream for rows that arrive."""

    __slots__ = ()

    @abstractmethod
    def began(self, metrics: Metrics) -> None:
        """Set the metrics of the current run."""

    def run(
        self,
        batches: Any = None,
        /,
        *,
        engine: Engine | None = None,
        state: object = None,
        final: bool = True,
        max_delay: Duration | None = None,
        **sources: Any,
    ) -> Run:
        """Run incrementally: batches in, results out as windows close; open windows at the end unless `final=False`.

        With `max_delay=`, a thread reads the batches as they come, and those that arrive within the delay are one task:
        for live iterators of many small batches.
        """
        from penstock.api.running import run  # noqa: PLC0415 - loaded on first use

        started = run(cast("Stream", self), batches, sources, engine, state, flag(final, "final"), max_delay)
        self.began(started.metrics)
        return started

    @overload
    def open(
        self, state: object = None, *, engine: Engine | None = None, background: Literal[False] = False
    ) -> Live: ...

    @overload
    def open(
        self,
        state: object = None,
        *,
        engine: Engine | None = None,
        background: Literal[True],
        max_delay: Duration = "1ms",
        queue_rows: int = 1 << 20,
        on_result: Callable[[pa.RecordBatch], object] | None = None,
    ) -> Background: ...

    def open(
        self,
        state: object = None,
        *,
        engine: Engine | None = None,
        background: bool = False,
        max_delay: Duration | None = None,
        queue_rows: int | None = None,
        on_result: Callable[[pa.RecordBatch], object] | None = None,
    ) -> Live | Background:
        """Open the query for pushing rows; `push` returns the results they complete.

        With `background=True`, `push` returns at once, and blocks only while `queue_rows` rows wait. A worker thread
        gathers rows for at most `max_delay` into one task; results are iterated over, or go to `on_result`.
        """
        from penstock.api.live import open_live  # noqa: PLC0415 - loaded on first use

        live = open_live(cast("Stream", self), engine, state)
        self.began(live.metrics)
        if flag(background, "background"):
            from penstock.api.background import in_background  # noqa: PLC0415 - loaded on first use

            return in_background(live, max_delay, queue_rows, on_result)
        if (max_delay, queue_rows, on_result) != (None, None, None):
            raise BindingError("max_delay=, queue_rows= and on_result= go with background=True")
        return live
