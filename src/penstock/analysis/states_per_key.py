"""Whether a windowed object can keep partial states per key between pushes, in place of its rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.analysis.panes import ReductionFacts
from penstock.expr.typing import type_of
from penstock.ir.nodes import Body, Lookback, Program, Reduce, Reduction
from penstock.loop.machine import is_text, machine_type
from penstock.types.windows import Count, LookBack, Session, Window


def state_obstacle(body: Body, program: Program) -> str | None:
    """Return why rows must be kept; None if states of a fixed size per key do, which rows are added to as they come."""
    if not isinstance(body, Reduce | Lookback):
        return "the result needs the rows of a window, not only their states"
    schema = program[body.source].schema
    return (
        (
            _span_obstacle(body.spans)
            if isinstance(body, Lookback)
            else _window_obstacle(body.domain, bool(body.keys))
        )
        or _key_obstacle([type_of(key.expr, schema) for key in body.keys])
        or reductions_obstacle(body.reductions, schema)
    )


def reductions_obstacle(reductions: Sequence[Reduction], schema: pa.Schema) -> str | None:
    """Return why the rows that reductions read must be kept; None if states of a fixed size do."""
    found = (_reduction_obstacle(reduction, schema) for reduction in reductions)
    return next((obstacle for obstacle in found if obstacle), None)


def _window_obstacle(domain: Window, keyed: bool) -> str | None:
    match domain:
        case Session():
            return None
        case Count() if not keyed:
            return "windows of rows without keys are reduced at regular places"
        case Count(size=size, every=every):
            return None if size <= every else "windows of rows overlap: a row has a state in several"
        case _:
            return f"{type(domain).__name__.lower()} windows have no state per key"


def _span_obstacle(spans: Sequence[LookBack]) -> str | None:
    if len(spans) > 1:
        return "look-backs of several spans share the rows they read"
    return "a delayed look-back reads rows in two places" if spans[0].delay else None


def _key_obstacle(types: list[pa.DataType]) -> str | None:
    other = next((dtype for dtype in types if machine_type(dtype) is None and not _has_codes(dtype)), None)
    return None if other is None else f"a key of type {other} has no word of 64 bits"


def _has_codes(dtype: pa.DataType) -> bool:
    return is_text(dtype) and not pa.types.is_string_view(dtype)


def _reduction_obstacle(reduction: Reduction, schema: pa.Schema) -> str | None:
    facts = ReductionFacts(reduction, schema)
    if not facts.fits_panes(by_place=False):
        return f"{facts.name} {facts.why_not_merged}"
    if facts.name != "count" and any(machine_type(dtype) is None for dtype in facts.types):
        return f"{facts.name} keeps values that are not machine numbers"
    return None
