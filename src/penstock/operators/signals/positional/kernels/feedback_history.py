"""The last defined results of a feedback: few are held in variables, many in a ring buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, Buffer, Value, Var, const, select


class Recent(Protocol):
    """Past results by number of samples; marks without a result are not counted."""

    def ago(self, back: int) -> Value:
        """Return the result `back` samples ago."""

    def push(self, value: Value, defined: Value | None) -> None:
        """Append a result, if it is defined."""

    def leave(self) -> None:
        """Store the results for the next block, the latest last."""


def recent_results(k: KernelBuilder, buffer: Buffer, many: int, in_registers: int) -> Recent:
    """Load the results of previous blocks from the front of a buffer."""
    if many > in_registers:
        return _Ring(k, buffer, many, k.var("end", 0, I64))
    return _Registers(k, buffer, [k.var("past", buffer[many - back]) for back in range(1, many + 1)])


@dataclass(frozen=True, slots=True)
class _Registers:
    k: KernelBuilder
    buffer: Buffer
    values: list[Var]  # latest first

    def ago(self, back: int) -> Value:
        return self.values[back - 1]

    def push(self, value: Value, defined: Value | None) -> None:
        newer = [value, *self.values][: len(self.values)]
        for variable, new in reversed(list(zip(self.values, newer, strict=True))):
            self.k.set(variable, new if defined is None else select(defined, new, variable))

    def leave(self) -> None:
        for back, variable in enumerate(self.values, 1):
            self.k.store(self.buffer, len(self.values) - back, variable)


@dataclass(frozen=True, slots=True)
class _Ring:
    k: KernelBuilder
    buffer: Buffer
    size: int
    end: Var  # the index of the oldest result, which the next one overwrites

    def ago(self, back: int) -> Value:
        place = self.k.var("ago", self.end - back)
        return self.buffer[select(place < 0, place + self.size, place)]

    def push(self, value: Value, defined: Value | None) -> None:
        k, oldest = self.k, self.buffer[self.end]
        k.store(self.buffer, self.end, value if defined is None else select(defined, value, oldest))
        step = const(1, I64) if defined is None else defined.to(I64)
        after = k.var("after", self.end + step)
        k.set(self.end, select(after >= self.size, const(0, I64), after))

    def leave(self) -> None:
        """Rotate the ring by three reversals, so that its oldest result comes first."""
        self._reverse(const(0, I64), self.end)
        self._reverse(self.end, const(self.size, I64))
        self._reverse(const(0, I64), const(self.size, I64))

    def _reverse(self, begin: Value, end: Value) -> None:
        k = self.k
        with k.for_(0, (end - begin).div(2), "j", scalar=True) as j:
            low, high = k.var("low", begin + j), k.var("high", end - 1 - j)
            one, other = k.var("one", self.buffer[low]), k.var("other", self.buffer[high])
            k.store(self.buffer, low, other)
            k.store(self.buffer, high, one)
