"""Calls that change a query, and whether the last one completed."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from types import TracebackType
from typing import TypeVar

from penstock.errors import BindingError, StateError

T = TypeVar("T")


class Step:
    """Marks a query as halfway while a call changes it; only a call that returns its results takes the mark away.

        with step:
            return results

    An interrupt may come between any two lines. The mark goes in `__exit__`, as the last thing before the results reach
    the caller, so there is no line at which results are lost and the query goes on. An error is harmless where `mark`
    gives what it gave when the call began: nothing had been changed.
    """

    __slots__ = ("_began", "_mark", "entries", "halfway", "under_way")

    def __init__(self, mark: Callable[[], object] | None = None) -> None:
        self._mark = mark
        self._began: object = None
        self.entries = 0
        self.halfway = self.under_way = False

    def check(self) -> None:
        """Refuse to go on after a call that did not complete."""
        if self.halfway:
            raise StateError(
                "an earlier push failed halfway: go on from the state that was saved before it, or start anew"
            )

    def __enter__(self) -> None:
        self._began = None if self._mark is None else self._mark()
        self.entries += 1
        self.halfway = self.under_way = True

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.under_way, self.halfway = False, kind is not None and not self._harmless(kind)

    def _harmless(self, kind: type[BaseException]) -> bool:
        return issubclass(kind, Exception) and self._mark is not None and self._mark() == self._began


class SharedStep(Step):
    """A step that threads may share: one call at a time, others wait. A call from within a call is refused."""

    __slots__ = ("_lock",)

    def __init__(self, mark: Callable[[], object] | None = None) -> None:
        super().__init__(mark)
        self._lock = RLock()

    def run(self, name: str, work: Callable[[], T], after: Callable[[], None] | None = None) -> T:
        """Do the work of a call; then `after`, whose errors leave the query as the call left it."""
        entered = False
        try:
            with self._lock:
                self._refuse_nested(name)
                self.check()
                entered = True
                with self:
                    result = work()
            if after is not None:
                after()
            return result  # noqa: TRY300 - an interrupt on this line loses the results
        except BaseException as error:
            # An interrupt may come behind the step, while the lock is released: then results are lost, too.
            if entered and not isinstance(error, Exception):
                self.under_way, self.halfway = False, True
            raise

    def _refuse_nested(self, name: str) -> None:
        if self.under_way:
            raise BindingError(
                f"{name} was called from within a call of the same open query, by a function of late_to= for example; "
                "call it when that one has returned"
            )
