"""Recompute: every window from its own rows. Best where windows overlap little, and for any aggregate.

Cost: the rows of all windows together. State: none.
"""

from __future__ import annotations

from penstock.kernels.swag.slide import Slide


def recompute(slide: Slide) -> None:
    """Write the loop over frames."""
    k = slide.k
    with k.for_(slide.begin, slide.end, "f") as f:
        states = slide.identities("state")
        with k.for_(slide.lo[f], slide.hi[f], "r") as r:
            slide.step(states, k.var("row", r))
        slide.emit(f, states)
