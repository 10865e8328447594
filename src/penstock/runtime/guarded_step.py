"""Guards for calls that change a query: they record whether the last call completed."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from types import TracebackType
from typing import TypeVar

from penstock.errors import BindingError, StateError

T = TypeVar("T")


class GuardedStep:
    """Mark a query as halfway while a call changes it; only a call that returns its results clears the mark.

        with step:
            return results

    An interrupt may occur between any two lines. `__exit__` clears the mark as the last action before the results
    reach the caller, so no line loses results and leaves the query usable. An error is harmless if `mark` returns the
    same value as when the call began: nothing was changed.
    """

    __slots__ = ("_began", "_mark", "entries", "halfway", "under_way")

    def __init__(self, mark: Callable[[], object] | None = None) -> None:
        self._mark = mark
        self._began: object = None
        self.entries = 0
        self.halfway = self.under_way = False

    def check(self) -> None:
        """Refuse further calls after a call that did not complete."""
        if self.halfway:
            raise StateError(
                "an earlier push failed halfway: continue from the state that was saved before it, or start again"
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


class SharedStep(GuardedStep):
    """A step for several threads: calls run one at a time. A nested call is refused."""

    __slots__ = ("_lock",)

    def __init__(self, mark: Callable[[], object] | None = None) -> None:
        super().__init__(mark)
        self._lock = RLock()

    def run(self, name: str, work: Callable[[], T], after: Callable[[], None] | None = None) -> T:
        """Run the work of a call; then `after`, whose errors do not affect the query."""
        entered = False
        try:
            with self._lock:
                if self.under_way:
                    self._refuse_nested(name)
                if self.halfway:
                    self.check()
                entered = True
                with self:
                    result = work()
            if after is not None:
                after()
            return result  # noqa: TRY300 - an interrupt on this line loses the results
        except BaseException as error:
            # An interrupt after the step, while the lock is released, also loses results.
            if entered and not isinstance(error, Exception):
                self.under_way, self.halfway = False, True
            raise

    def _refuse_nested(self, name: str) -> None:
        raise BindingError(
            f"{name} was called from within a call of the same open query, by a function of late_to= for example; "
            "call it when that one has returned"
        )
