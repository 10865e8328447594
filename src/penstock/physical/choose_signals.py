"""Choose the algorithm of each reduction over the samples of a signal."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.analysis.panes import ReductionFacts, key_obstacle, reductions_obstacle
from penstock.expr import nodes as ex
from penstock.expr.aggregates import AGGREGATES
from penstock.ir import nodes as ir
from penstock.ir.signals import nodes as temporal
from penstock.ir.signals.scope import NO_END, is_lenient
from penstock.loop.numbers import machine_type
from penstock.physical import nodes as ph
from penstock.physical.choose_window import HELD_ROWS, HELD_STATES, AlgorithmChoice, over_samples


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


def held(program: temporal.Program, obstacle: str | None, aggregator: str | None, mode: ph.Mode) -> ph.Choice:
    """Choose what a signal keeps between pushes: states per key, or the samples that values are computed from anew.

    `obstacle` says why the program is not evaluated by position. Data at rest is one push: samples of a key are read one
    after the other, without a lookup for each event. Measured with one thread and 1,000 keys, from samples sorted by key
    against from event to event, in M rows/s: `rolling("1ms").mean()` 25 and 13, over 100 ms 22 and 8, two of them compared
    18 and 12.
    """
    found = "regular time is evaluated by position" if obstacle is None else None
    if mode == "bounded":
        found = (
            found or "data at rest comes in one push: samples are sorted by key once, without a lookup each"
        )
    if aggregator is not None:
        found = found or f"{aggregator} was requested, which reduces samples"
    found = found or event_obstacle(program)
    if found is not None:
        reason = "each push computes values from all samples that they depend on"
        return ph.Choice("held", HELD_ROWS, reason, (ph.Rejected(HELD_STATES, found),))
    reason = "values change from event to event: a push costs its samples and the events that pass"
    return ph.Choice(
        "held", HELD_STATES, reason, (ph.Rejected(HELD_ROWS, "each push would read every sample held"),)
    )


def event_obstacle(program: temporal.Program) -> str | None:
    """Return why a program is not evaluated from event to event; None if it is one expression over samples in order."""
    *others, output = program.objects
    if program.pieces:
        return "intervals end at marks, too"
    if output.name != program.output or not isinstance(output.body, temporal.Expression):
        return "the output is not an expression"
    if not all(isinstance(obj.body, temporal.Sampled) for obj in others):
        return "the output is an expression over other expressions"
    schemas = {obj.name: obj.schema for obj in program.objects}
    if is_lenient(output.body, schemas):
        return "the output has a value where its inputs have none"
    found = (_sample_obstacle(obj) for obj in others)
    return (
        key_obstacle(list(program.keys.types))
        or next((obstacle for obstacle in found if obstacle), None)
        or _value_obstacle(output)
        or _span_obstacle(output.body, schemas)
    )


def _sample_obstacle(this: temporal.Object) -> str | None:
    assert isinstance(this.body, temporal.Sampled)
    if this.body.hold.until is not None:
        return "samples end at times of their own"
    if this.body.hold.resolve is not None:
        return "samples of one time are combined"
    return _value_obstacle(this)


def _value_obstacle(this: temporal.Object) -> str | None:
    other = next((dtype for dtype in this.schema.types if machine_type(dtype) is None), None)
    return None if other is None else f"values of type {other} are not machine numbers"


def _span_obstacle(body: temporal.Expression, schemas: Mapping[str, pa.Schema]) -> str | None:
    for over in body.reductions:
        match over.span:
            case temporal.Last():
                return "a span is a number of samples"
            case temporal.Rolling(size=size) if size >= NO_END:
                return "a span never ends"
        reduction = ir.Reduction(over.function, over.args, over.where, over.options)
        obstacle = reductions_obstacle([reduction], schemas[over.source])
        if obstacle is not None:
            return obstacle
    return None if body.reductions or body.accesses else "the output reads no samples"


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
