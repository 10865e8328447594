"""The kernels of the eight intra-window join algorithms, by name (Zhang et al., SIGMOD 2021, section 3).

    npj     npj_insert npj_count npj_starts npj_fill npj_probe
            in order: fill_places find_runs expand_runs, or of unique keys mark_singles find_singles
    prj     prj_histogram prj_scatter prj_join
    mway    sort_run merge_many match_sorted
    mpass   sort_run merge_two match_sorted
    shj_*   shj_push_left shj_push_right shj_grow, and for jb route_count route_rows
    pmj_*   sort_run match_sorted merge_many match_across, and for jb as above

All read key codes, which are 64-bit numbers, and produce row numbers or counts. `loop/abi.py` states their
assumptions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from penstock.algorithms.joins.kernels.key_words import range_of
from penstock.algorithms.joins.kernels.no_partitioning import (
    expand_runs,
    fill_places,
    find_runs,
    find_singles,
    mark_singles,
    npj_count,
    npj_fill,
    npj_insert,
    npj_probe,
    npj_starts,
)
from penstock.algorithms.joins.kernels.radix import prj_histogram, prj_join, prj_scatter
from penstock.algorithms.joins.kernels.sort_merge import (
    match_across,
    match_sorted,
    merge_many,
    merge_two,
    sort_run,
)
from penstock.algorithms.joins.kernels.symmetric_hash import route_count, route_rows, shj_grow, shj_push
from penstock.loop.abi import JoinSpec
from penstock.loop.nodes import Kernel

KERNELS: dict[str, Callable[[JoinSpec], Kernel]] = {
    "range_of": lambda _: range_of(),
    "npj_insert": npj_insert,
    "npj_count": npj_count,
    "npj_starts": lambda _: npj_starts(),
    "npj_fill": npj_fill,
    "npj_probe": npj_probe,
    "fill_places": fill_places,
    "find_runs": find_runs,
    "find_runs_outer": partial(find_runs, outer=True),
    "expand_runs": lambda _: expand_runs(),
    "expand_runs_outer": lambda _: expand_runs(outer=True),
    "mark_singles": mark_singles,
    "find_singles": find_singles,
    "find_singles_outer": partial(find_singles, outer=True),
    "prj_histogram": prj_histogram,
    "prj_scatter": prj_scatter,
    "prj_join": prj_join,
    "sort_run": sort_run,
    "merge_two": merge_two,
    "merge_many": merge_many,
    "match_sorted": match_sorted,
    "match_across": lambda spec: match_across(replace(spec, pairs=True)),
    "shj_push_left": partial(shj_push, side=0),
    "shj_push_right": partial(shj_push, side=1),
    "shj_grow": lambda _: shj_grow(),
    "route_count": lambda _: route_count(),
    "route_rows": route_rows,
}


def build(name: str, spec: JoinSpec) -> Kernel:
    """Build the named kernel for a specification."""
    return KERNELS[name](spec)
