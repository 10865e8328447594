"""The optimisation passes in order. Each preserves the program's semantics; each can be disabled by name."""

from __future__ import annotations

from collections.abc import Callable

from penstock.ir.nodes import Program
from penstock.ir.verify import verify
from penstock.passes.close_unbounded import close_unbounded
from penstock.passes.fuse_joins import fuse_joins
from penstock.passes.fuse_samples import fuse_samples
from penstock.passes.fuse_signals import fuse_signals, share_signals
from penstock.passes.prune_columns import prune_columns, share_reductions
from penstock.passes.push_filter import push_filter
from penstock.passes.simplify import fold_constants, merge_comparisons

Pass = Callable[[Program], Program]

PASSES: tuple[tuple[str, Pass], ...] = (
    ("fold_constants", fold_constants),
    ("fuse_samples", fuse_samples),
    ("push_filter", push_filter),
    ("fuse_samples", fuse_samples),  # absorbs the filters that push_filter moved
    ("fold_constants", fold_constants),  # folds expressions that fusion combined
    ("merge_comparisons", merge_comparisons),
    ("share_reductions", share_reductions),
    ("fuse_joins", fuse_joins),
    ("fuse_signals", fuse_signals),
    ("share_signals", share_signals),
    ("close_unbounded", close_unbounded),
    ("prune_columns", prune_columns),
)


def optimise(
    program: Program,
    off: frozenset[str] = frozenset(),
    trace: list[tuple[str, Program]] | None = None,
) -> Program:
    """Run every pass that is not off, verifying each result; `trace` receives the program after each pass."""
    verify(program)
    for name, run in PASSES:
        if name in off:
            continue
        before, program = program, _keeping(program, run(program))
        verify(program, before)
        if trace is not None:
            trace.append((name, program))
    return program


def _keeping(before: Program, after: Program) -> Program:
    """Keep the objects that a pass left as they were, so that they are not verified again."""
    kept = {obj.name: obj for obj in before.objects}
    objects = tuple(kept[obj.name] if kept.get(obj.name) == obj else obj for obj in after.objects)
    return Program(objects, after.output)
