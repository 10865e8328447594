"""Show the stages of a query's compilation."""

from __future__ import annotations

from html import escape
from importlib import import_module
from typing import TYPE_CHECKING

from penstock.api.literals import shown
from penstock.errors import ExpressionTypeError
from penstock.plan.nodes import Plan
from penstock.plan.schema import schema_of
from penstock.plan.show import show
from penstock.types.choices import one_of

if TYPE_CHECKING:
    from penstock.api.stream import Stream

STAGES = ("plan", "ir", "passes", "physical", "loop", "llvm", "asm", "spark")


class Explanation(str):
    """Text that prints without quotes, in a terminal and in a notebook."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self)}</pre>"


def explain(stream: Stream, stage: str | None) -> Explanation:
    """Show a query at one stage, or an overview of all stages."""
    if stage is not None and not one_of(stage, (*STAGES, "plan", "spark")):
        raise ExpressionTypeError(f"there is no stage {shown(stage)}; there are {', '.join(STAGES)}")
    if stage == "plan":
        return Explanation(show(stream.plan))
    if stage == "spark":
        return Explanation(import_module("penstock.spark.frame").explain(stream))
    return Explanation(stream.compiled().explain(stage))


def html(plan: Plan) -> str:
    """Show the columns and the plan of a query in a notebook, without running it."""
    columns = "".join(
        f"<tr><td>{escape(field.name)}</td><td>{escape(str(field.type))}</td></tr>"
        for field in schema_of(plan)
    )
    return (
        "<div><b>penstock.Stream</b> (not run; .collect() runs it)"
        f"<table><tr><th>column</th><th>type</th></tr>{columns}</table><pre>{escape(show(plan))}</pre></div>"
    )
