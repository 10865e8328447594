"""The emit kernel: panes to windows, partials to results.

A window is a run of panes, given as a range of slots in order of time. `emit_steps/` has a file for each
step:

    merging   merge the panes of a window, for all keys at once
    results   for each key in the window: states to values, `having`, keys and bounds

In a sparse table, (pane, key) pairs take the place of panes, ordered by key, then time: a frame of them is
one window of one key.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.algorithms.expressions.columns import arenas
from penstock.algorithms.selection import Selection, chunk_length
from penstock.loop.abi import DONE, ERRORS, LANES, NEED_OUTPUT, OUTPUT, STATUS
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I32, I64, U8, Const, Value, const, maximum, minimum, select
from penstock.operators.pane_aggregate.kernels.emit_steps.merging import Mergers
from penstock.operators.pane_aggregate.kernels.emit_steps.panes import WindowPanes
from penstock.operators.pane_aggregate.kernels.emit_steps.results import ResultWriter
from penstock.operators.pane_aggregate.kernels.emit_steps.spec import EmitKernel, EmitSpec

EMIT_CHUNK = 2048  # keys


def build_emit(spec: EmitSpec) -> EmitKernel:
    """Build the emit kernel for a specification."""
    emit = _Emit(spec)
    emit.write()
    k = emit.k
    return EmitKernel(k.build(), tuple(emit.results.outputs), tuple(emit.panes.scratch), arenas(k))


@dataclass
class _Emit:
    """Emits windows lo … hi - 1, as many as fit the output."""

    spec: EmitSpec
    k: KernelBuilder = field(default_factory=lambda: KernelBuilder("emit"))

    def __post_init__(self) -> None:
        k = self.k
        self.head = k.buffer("head", I64)
        self.panes = WindowPanes(k, self.spec)
        self.merged = Mergers(self.panes)
        self.lo, self.hi, self.capacity = k.scalar("lo"), k.scalar("hi"), k.scalar("capacity")
        self.results = ResultWriter(k, self.spec)

    def write(self) -> None:
        """Emit the kernel with its return after the loop, not inside: LLVM then vectorises the loops over keys."""
        k = self.k
        w = k.var("w", self.lo)
        with k.while_((w < self.hi) & (self.results.rows + self.panes.columns <= self.capacity)):
            self.merged.advance(w)
            if self.spec.sparse:
                pair = k.var("pair", self.panes.order[self.panes.first[w]])
                self.results.add(w, pair, self._states(const(0, I64)))
            else:
                self._keys_of(w)
            k.set(w, w + 1)
        with k.if_(w.eq(self.hi)):
            self.merged.leave()
        self._leave(select(w < self.hi, const(NEED_OUTPUT, I64), const(DONE, I64)), w)

    def _keys_of(self, w: Value) -> None:
        """Write the keys of a window: contiguous keys without a selection, in a vectorisable loop."""
        k, columns = self.k, self.panes.columns
        if self.spec.having is not None or isinstance(columns, Const):
            self._keys_held(w)
            return
        first, last, held = k.var("first", columns), k.var("last", -1), k.var("held", 0)
        with self.panes.each_key() as key:
            present = k.var("present", self.merged.read(0, key)[0].ne(0))
            k.set(first, minimum(first, select(present, key, columns)))
            k.set(last, maximum(last, select(present, key, const(-1, I64))))
            k.set(held, held + present.to(I64))
        with k.if_((last - first).eq(held - 1)):
            base = k.var("base", self.results.rows - first)
            with k.for_(first, last + 1, "key") as key:
                self.results.put(w, key, k.var("at", base + key), self._states(key))
            k.set(self.results.rows, self.results.rows + held)
        with k.else_():
            self._keys_held(w)

    def _keys_held(self, w: Value) -> None:
        """Write the keys of a window through a selection: a branch per key would be mispredicted half the time."""
        k, columns = self.k, self.panes.columns
        chosen = k.local("chosen", I32, EMIT_CHUNK + LANES)
        positions = k.shared_buffer("positions", "", U8)
        begin = k.var("begin", 0)
        with k.while_(begin < columns):
            n = k.var("n", chunk_length(columns - begin, EMIT_CHUNK))
            held = Selection(k, begin, lambda r: self.merged.read(0, begin + r)[0].ne(0), chosen, positions)
            count = held.rows(n)
            with k.for_(0, count, "j") as j:
                key = k.var("key", chosen[j].to(I64))
                self.results.add(w, key, self._states(key))
            k.set(begin, begin + n)

    def _states(self, key: Value) -> list[tuple[Value, ...]]:
        return [self.merged.read(m, key) for m in range(len(self.spec.monoids))]

    def _leave(self, status: Value, reached: Value) -> None:
        k = self.k
        k.store(self.head, STATUS, status)
        k.store(self.head, OUTPUT, self.results.rows)
        k.store(self.head, ERRORS, self.head[ERRORS] | self.results.errors.to(I64))
        k.ret(reached)
