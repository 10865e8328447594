"""Say how a join in windows finds its pairs: the algorithm that was asked for, or the tree that chooses one."""

from __future__ import annotations

from penstock.ir.join_nodes import InWindow, Join
from penstock.join_algorithms import join_chooser, joins_arriving
from penstock.runtime.joins.algorithms import FEW_ROWS


def join_reasons(body: Join, fused: bool = False) -> list[str]:
    """Lines about the algorithm; none for joins that have no choice."""
    if not (isinstance(body.pairing, InWindow) and body.on):
        return []
    if fused:
        return [
            "fused: counts and sums of both sides multiply, no pair is made; keys meet once for each window"
        ]
    arriving = joins_arriving(body)
    early = [
        "in run and open: pairs as rows arrive, in no order; rows without a partner when their window ends"
    ]
    if body.algorithm != "auto":
        return [
            f"pairs by {body.algorithm}, as asked for, one window at a time",
            *(early if arriving else []),
        ]
    chooser = join_chooser()
    return [
        *(early if arriving else []),
        f"pairs of windows below {FEW_ROWS:,} rows in lanes; larger ones by npj where they are given in order",
        f"(pairs of others would have to be sorted), else by what a tree picks, for {body.optimise} ({chooser.origin}):",
        *chooser.show(body.optimise).splitlines(),
    ]
