"""Print joins of the IR."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.expr.nodes import Column, Field
from penstock.expr.show import show as show_expr
from penstock.ir.joins import Asof, Join, Joined, RollingJoin
from penstock.ir.nodes import Reduction
from penstock.types.windows import InWindow, Keys, Lookup, Pairing, Window, Within


def join_text(
    body: Joined,
    domain: Callable[[Window], str],
    ticks: Callable[[int], str],
    reduction: Callable[[Reduction, str], str],
) -> str:
    """Print a join on several lines; the callables print windows, durations and reductions."""
    lines: list[str] = []
    match body:
        case Join():
            by = "" if body.algorithm == "auto" else f" by {body.algorithm}"
            head = f"{body.how} join of ~{body.left}, ~{body.right}{_on(body.on)}, {_pairing(body.pairing, domain, ticks)}{by}"
            lines += [] if body.where is None else [f"where {show_expr(body.where)}"]
        case Asof():
            near = "" if body.tolerance is None else f", at most {ticks(body.tolerance)} away"
            at = "" if body.exact else ", not at the same time"
            head = (
                f"each ~{body.left} with the {_NEAREST[body.direction]} ~{body.right}{_on(body.on)}{near}{at}"
            )
        case RollingJoin():
            head = f"each ~{body.left}{_on(body.on)}"
            span = f"~{body.right}[t {_signed(body.within.lo, ticks)} : t {_signed(body.within.hi, ticks)}]"
            lines += [f"#{place} = {reduction(item, span)}" for place, item in enumerate(body.reductions)]
    lines.append(_fields(body.fields))
    return "\n".join([f"{head} {{", *(f"  {line}" for line in lines), "}"])


_NEAREST = {"backward": "last", "forward": "next", "nearest": "nearest"}


def _pairing(pairing: Pairing, domain: Callable[[Window], str], ticks: Callable[[int], str]) -> str:
    match pairing:
        case InWindow(left=left, right=right):
            return domain(left) if left == right else f"{domain(left)} / {domain(right)}"
        case Within(lo=lo, hi=hi):
            return f"within {_signed(lo, ticks)} … {_signed(hi, ticks)}"
        case Lookup(table=table):
            return f"the {'right' if table else 'left'} being a table"


def _signed(length: int, ticks: Callable[[int], str]) -> str:
    return f"- {ticks(-length)}" if length < 0 else f"+ {ticks(length)}"


def _on(on: Keys) -> str:
    pairs = [f"{_name(left)} = {_name(right)}" for left, right in on]
    return f" on {', '.join(pairs)}" if pairs else ""


def _fields(fields: Iterable[Field]) -> str:
    return "; ".join(
        _name(field.name)
        if field.expr == Column(field.name)
        else f"{_name(field.name)}: {show_expr(field.expr)}"
        for field in fields
    )


def _name(name: str) -> str:
    return show_expr(Column(name))
