"""Recompute: aggregate every window from its rows. Works for any aggregate; best if windows overlap little.

Cost: the sum of the windows' sizes. State: none.
"""

from __future__ import annotations

from penstock.algorithms.sliding.accumulate import fold_rows
from penstock.algorithms.sliding.slide import Slide, SlideScratch


def recompute(slide: Slide) -> tuple[SlideScratch, ...]:
    """Emit the loop over frames."""
    k = slide.k
    with k.for_(slide.begin, slide.end, "f") as f:
        start = k.var("start", slide.lo[f])
        states = slide.identities("state")
        fold_rows(slide, states, start, k.var("count", slide.hi[f] - start))
        slide.emit(f, states)
    return ()
