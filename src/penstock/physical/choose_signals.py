"""Choose the algorithm of each reduction over the samples of a signal."""

from __future__ import annotations

from penstock.analysis.panes import ReductionFacts
from penstock.expr import nodes as ex
from penstock.expr.aggregates import AGGREGATES
from penstock.ir import nodes as ir
from penstock.ir.signals import nodes as temporal
from penstock.physical import nodes as ph
from penstock.physical.choose_algorithm import AlgorithmChoice, over_samples


def reductions_of(this: temporal.Object) -> tuple[temporal.WindowReduction, ...]:
    """Return the reductions of an object; samples that resolve equal times reduce each of their columns."""
    match this.body:
        case temporal.Expression(reductions=reductions) | temporal.Feedback(reductions=reductions):
            return reductions
        case temporal.Sampled(hold=temporal.Hold(resolve=str() as how)):
            options = tuple(sorted(AGGREGATES[how].settings(()).items()))
            return tuple(
                temporal.WindowReduction(this.name, how, (ex.Column(name),), temporal.Last(1), None, options)
                for name in this.schema.names
            )
        case _:
            return ()


def algorithms(program: temporal.Program, force: str | None) -> tuple[tuple[AlgorithmChoice, ...], ...]:
    """Choose the algorithm of each reduction of each object; `force` names one to use wherever it is applicable."""
    return tuple(
        tuple(_chosen(reduction, program, force) for reduction in reductions_of(this))
        for this in program.objects
    )


def _chosen(over: temporal.WindowReduction, program: temporal.Program, force: str | None) -> AlgorithmChoice:
    reduction = ir.Reduction(over.function, over.args, over.where, over.options)
    return over_samples(ReductionFacts(reduction, program[over.source].schema), force)


def evaluation(
    program: temporal.Program, obstacle: str | None, chosen: tuple[tuple[AlgorithmChoice, ...], ...]
) -> tuple[ph.Choice, ...]:
    """List the choices of a node; `obstacle` says why the program is not evaluated by position."""
    if obstacle is None:
        reason = "time is regular: an object is an array indexed by position"
        return (ph.Choice("evaluation", "positional", reason),)
    reason = "values are computed from change to change of what they read"
    rejected = (ph.Rejected("positional", obstacle),)
    reductions = (
        ph.Choice(f"~{this.name} reduction #{number}", choice.algorithm, choice.reason)
        for this, several in zip(program.objects, chosen, strict=True)
        for number, choice in enumerate(several)
    )
    return (ph.Choice("evaluation", "change-to-change", reason, rejected), *reductions)
