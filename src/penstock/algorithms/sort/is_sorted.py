"""The kernel that tests whether times are already sorted, as most are; the sort is then skipped."""

from __future__ import annotations

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, Kernel, minimum

_BLOCK = 2048  # times between two checks of the result: long enough to vectorise


def falls() -> Kernel:
    """Return 1 if one of the times `lo` … `hi` is less than the one before it, else 0; `lo` must be at least 1."""
    k = KernelBuilder("falls")
    times, lo, hi = k.buffer("times", I64), k.scalar("lo"), k.scalar("hi")
    begin, fallen = k.var("begin", lo), k.var("fallen", 0)
    with k.while_((begin < hi) & fallen.eq(0)):
        end = k.var("end", minimum(begin + _BLOCK, hi))
        with k.for_(begin, end, "i") as i:
            k.set(fallen, fallen | (times[i] < times[i - 1]).to(I64))
        k.set(begin, end)
    k.ret(fallen)
    return k.build()
