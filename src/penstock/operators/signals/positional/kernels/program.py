"""Lower a temporal program over regular time to one kernel: the fast path of signals.

`analysis/positions.py` decides whether that is possible; `reach` gives the positions around its own that each result needs;
`Dense.kernel` builds it. The kernel computes the output for positions [lo, hi) from samples of which
positions [base, total) are given. Where [lo - past, hi + future) lies inside the samples, the *interior*
kernel applies: it does not test where samples begin and end. The *edge* kernel tests, and is correct
everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from penstock.analysis.positions import (
    Inputs,
    Positions,
    marks_of,
    positions_of,
)
from penstock.ir.signals.nodes import (
    Expression,
    Feedback,
    Object,
    Program,
    Resample,
    Sampled,
    sources_of,
)
from penstock.loop.abi import Binding, OutputColumn, PastResults, Scratch
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import U8, Kernel
from penstock.loop.numbers import machine_type
from penstock.operators.signals.positional.kernels.feedback import (
    FeedbackHistory,
    carry,
    declare_history,
    write_feedback,
)
from penstock.operators.signals.positional.kernels.objects import (
    Pattern,
    write_expression,
    write_resample,
    write_sampled,
)
from penstock.operators.signals.positional.kernels.plan import Nullable, PositionalPlan, PositionNeed
from penstock.operators.signals.positional.kernels.writer import Array, BlockWriter, ResultPlacement, Stored
from penstock.types.time import Time

EDGE, INTERIOR = "dense_edge", "dense"  # the names of kernels


@dataclass(frozen=True)
class DenseKernel:
    """A kernel, the bindings of its parameters per input, its outputs, and its scratch memory."""

    kernel: Kernel
    inputs: tuple[tuple[Binding, ...], ...]
    places: tuple[tuple[str, str], ...]  # the parameters for the range of given samples of each input
    outputs: tuple[OutputColumn, ...]
    scratch: tuple[Scratch, ...]
    memories: tuple[PastResults, ...]


@dataclass(frozen=True)
class Dense:
    """A program that the dense path can run. Its kernels are specialised to the nullability of the samples."""

    positions: Positions
    inputs: tuple[tuple[pa.Schema, Time], ...]

    @property
    def reach(self) -> PositionNeed:
        """The input positions that a result can depend on."""
        return self._plain.reach

    @property
    def sequential(self) -> bool:
        return self._plain.sequential

    @property
    def lasting(self) -> int:
        """The number of positions after the last sample for which its value holds."""
        bodies = [obj.body for obj in self.positions.program.objects]
        return max(body.hold.lasting or 0 for body in bodies if isinstance(body, Sampled))

    @property
    def shortest(self) -> int:
        """The least number of samples: with fewer, shifted copies of samples would leave gaps."""
        program = self.positions.program
        read = [obj.name for obj in program.objects if isinstance(obj.body, Feedback | Resample)]
        spans = [marks_of(program, name) for name in (*read, *([program.output] if program.pieces else ()))]
        return max((last - first for first, last in spans), default=1) or 1

    @property
    def marks(self) -> tuple[int, int] | None:
        """The offsets of the first and last output sample from those of the input, if the output is cut at samples."""
        program = self.positions.program
        return marks_of(program, program.output) if program.pieces else None

    @property
    def step(self) -> int:
        """The number of positions per value of the output."""
        return self.positions.steps[self.positions.program.output]

    @property
    def pattern(self) -> Pattern | None:
        """The pattern of output times between positions, if the output is resampled."""
        body, time = self.positions.program[self.positions.program.output].body, self.positions.time
        return Pattern(body.every, time.period or 1, time.start) if isinstance(body, Resample) else None

    def kernel(
        self, nullable: Nullable, *, edge: bool, wide: bool = False, lost: bool = False
    ) -> DenseKernel:
        """Build the kernel, for inputs in which only these columns hold nulls."""
        plan = edge_plan = self._edge_plan(nullable, wide)
        if not edge:
            names = {obj.name for obj in plan.objects if isinstance(obj.body, Feedback)}
            least = {name: need for name, need in edge_plan.needs.items() if name in names}
            plan = PositionalPlan(self.positions, nullable, edge=False, wide=wide, lost=lost, least=least)
        return _Dense(plan, self.inputs).write()

    def _edge_plan(self, nullable: Nullable, wide: bool) -> PositionalPlan:
        if not wide and not any(nullable.values()):
            return self._plain
        return PositionalPlan(self.positions, nullable, edge=True, wide=wide)

    @cached_property
    def _plain(self) -> PositionalPlan:
        """The plan for samples without nulls, the common case."""
        return PositionalPlan(self.positions, {}, edge=True)


def dense(program: Program, inputs: Inputs) -> Dense:
    """Prepare a program for the dense path; raise `DoesNotFit` with the reason if it cannot run there."""
    return Dense(positions_of(program, inputs), tuple(inputs))


class _Dense:
    """Emits one kernel."""

    def __init__(self, plan: PositionalPlan, inputs: Inputs) -> None:
        self.plan = plan
        name = EDGE if plan.edge else INTERIOR
        self.writer = BlockWriter(plan, tuple(inputs), KernelBuilder(name))
        self.this = plan.positions.program[plan.positions.program.output]

    def write(self) -> DenseKernel:
        writer = self.writer
        histories = {
            obj.name: declare_history(writer, obj, obj.body)
            for obj in self.plan.objects
            if isinstance(obj.body, Feedback)
        }
        results, outputs = self._outputs()
        with writer.blocks():
            writer.declare_bases()
            target = self._target(results)
            for obj in self.plan.objects:
                if obj.name in self.plan.needs:
                    self._object(obj, histories, target)
                for source in sources_of(obj.body):
                    writer.done_with(source)
            for name, history in histories.items():
                carry(writer, name, history)
        scratch = tuple(
            Scratch(param.name, param.type, writer.pool.sizes[param.name])
            for param in writer.k.build().params
            if param.name in writer.pool.sizes
        )
        places = tuple((input_.base.name, input_.total.name) for input_ in writer.inputs)
        memories = tuple(self._memory(name, past) for name, past in histories.items())
        return DenseKernel(writer.k.build(), writer.bindings, places, outputs, scratch, memories)

    def _object(self, this: Object, histories: Mapping[str, FeedbackHistory], target: Stored) -> None:
        match this.body:
            case Sampled() as body:
                write_sampled(self.writer, this, body)
            case Expression() as body:
                write_expression(self.writer, this, body, target if this is self.this else None)
            case Feedback() as body:
                write_feedback(self.writer, this, body, histories[this.name])
            case Resample() as body:
                write_resample(self.writer, this, body, target)

    def _outputs(self) -> tuple[Stored, tuple[OutputColumn, ...]]:
        k, nulls = self.writer.k, self.plan.nulls[self.this.name]
        stored, outputs = Stored({}, {}), []
        for field in self.this.schema:
            machine = machine_type(field.type)
            assert machine is not None
            values = k.buffer("out", machine)
            stored.values[field.name] = Array(values, 0)
            valid = k.buffer("out_valid", U8) if field.name in nulls else None
            if valid is not None:
                stored.valid[field.name] = Array(valid, 0)
            outputs.append(
                OutputColumn(field.name, machine, values.name, None if valid is None else valid.name)
            )
        return stored, tuple(outputs)

    def _target(self, results: Stored) -> Stored:
        """Place results relative to the first requested position, and count a block's entries from there."""
        writer, step = self.writer, self.plan.step(self.this.name)
        if isinstance(self.this.body, Resample):
            return results
        origin = writer.lo + writer.phase
        distance = writer.bases[1] - origin if step == 1 else writer.base(step) - origin.div(step)
        place = writer.k.var("place", distance)
        return Stored(
            {name: ResultPlacement(value.buffer, 0, place) for name, value in results.values.items()},
            {name: ResultPlacement(array.buffer, 0, place) for name, array in results.valid.items()},
        )

    def _memory(self, name: str, history: FeedbackHistory) -> PastResults:
        body = self.plan.positions.program[name].body
        assert isinstance(body, Feedback)
        values, valid = history.values.buffer, history.valid.buffer
        return PastResults(
            values.name, valid.name, values.type, history.kept + self.writer.block, history.kept, body.initial
        )
