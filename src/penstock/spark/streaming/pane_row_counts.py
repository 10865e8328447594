"""Add row counts to the state of panes, so that a late pane is counted in rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.caches import CACHES
from penstock.compile import Compiled
from penstock.ir.nodes import Object, Program, Reduce, Reduction
from penstock.spark.tasks import Query

_ROWS = Reduction("count", ())


@CACHES.results(most=32)
def counted(query: Query, windows: tuple[str, ...]) -> Compiled:
    """Compile a query whose `windows` count their rows. Cached, like `Query.compiled`."""
    return with_counts(query.compiled(), windows)


def with_counts(compiled: Compiled, windows: Sequence[str]) -> Compiled:
    """Add a row count to the reductions of each of the windows, unless it has one."""
    objects = tuple(_counting(obj) if obj.name in windows else obj for obj in compiled.program.objects)
    return replace(compiled, program=Program(objects, compiled.program.output), _pipelines={})


def _counting(this: Object) -> Object:
    body = this.body
    assert isinstance(body, Reduce)
    if _ROWS in body.reductions:
        return this
    return replace(this, body=replace(body, reductions=(*body.reductions, _ROWS)))
