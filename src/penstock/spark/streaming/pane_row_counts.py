"""Let states of panes tell how many rows they hold: whoever finds a pane to be late can then say how many rows are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from penstock.compile import Compiled
from penstock.ir.nodes import Object, Program, Reduce, Reduction
from penstock.spark.tasks import Query

_ROWS = Reduction("count", ())


@lru_cache(maxsize=32)
def counted(query: Query, windows: tuple[str, ...]) -> Compiled:
    """Compile a query whose `windows` count their rows, asked for or not; kept, as `Query.compiled` is."""
    return with_counts(query.compiled(), windows)


def with_counts(compiled: Compiled, windows: Sequence[str]) -> Compiled:
    """Add to each of the windows a reduction that nobody reads: its state comes first in every pane's."""
    objects = tuple(_counting(each) if each.name in windows else each for each in compiled.program.objects)
    return replace(compiled, program=Program(objects, compiled.program.output), _wired={})


def _counting(this: Object) -> Object:
    body = this.body
    assert isinstance(body, Reduce)
    if _ROWS in body.reductions:
        return this
    return replace(this, body=replace(body, reductions=(*body.reductions, _ROWS)))
