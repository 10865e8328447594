"""Reductions over the samples of a signal, and what reads a temporal object: its value, its marks, or its samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.sliding.kernel import FrameShape
from penstock.algorithms.sorted_partitions.build import FrameReducers
from penstock.algorithms.sorted_partitions.frames import Frames
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.algorithms.sorted_partitions.reducers import KernelReducer
from penstock.algorithms.sorted_partitions.results import Reductions
from penstock.expr import nodes as ex
from penstock.ir import nodes as ir
from penstock.ir.signals import nodes as temporal
from penstock.ir.signals.scope import NO_END, is_lenient, reach
from penstock.operators.signals.accesses import SpanReading
from penstock.operators.signals.kernels.walk import EVER, LAST, PER, ROLLING, WINDOW
from penstock.operators.signals.sampling import Retention
from penstock.physical import nodes as ph
from penstock.physical.split_windows import hidden_name, split_window
from penstock.types.time import Time
from penstock.types.windows import LookBack

Reduce = Callable[[SortedPartitions, Sequence[Frames]], list[pa.Array]]
MakeRows = Callable[[ph.Rows, pa.Schema, Time, pa.Schema], Callable[[pa.RecordBatch], pa.RecordBatch]]


@dataclass(frozen=True)
class SampleReductions:
    """Reductions over the samples of one object; `overs[i]` has the frame list `spans[i]` and its algorithm."""

    owner: str
    source: temporal.Object
    overs: tuple[temporal.WindowReduction, ...]
    spans: tuple[int, ...]
    algorithms: tuple[str, ...]

    @property
    def rows(self) -> ir.Object:
        """The samples as an IR object."""
        clock = hidden_name(self.source.schema.names, "time", 0)
        schema = pa.schema([*self.source.schema, pa.field(clock, pa.int64())])
        name = f"{self.owner}.{self.source.name}.samples"
        return ir.Object(name, ir.Input(name), schema, Time(clock, pa.int64(), None))

    @property
    def reduced(self) -> ir.Object:
        """The reductions as a look-back with placeholder spans: frames may be of any kind."""
        rows = self.rows
        reductions = tuple(
            ir.Reduction(over.function, over.args, over.where, over.options, span)
            for over, span in zip(self.overs, self.spans, strict=True)
        )
        behind = tuple(LookBack(1, None, "right", 0) for _ in range(max(self.spans) + 1))
        body = ir.Lookback(rows.name, behind, (), reductions, ())
        return ir.Object(f"{self.owner}.{self.source.name}.reduced", body, rows.schema, rows.time)

    def reduce(
        self,
        kernel_factory: KernelFactory,
        threads: int,
        make_rows: MakeRows,
        *,
        showing: bool,
    ) -> Reduce:
        """Return the function that reduces frames; `showing` builds kernels before there is data."""
        rows = self.rows
        made = split_window(self.reduced, rows, [])
        shape = FrameShape(dense=True, may_be_empty=True)
        lanes_of = FrameReducers(
            made.ready.schema, rows.time, made.reductions, self.algorithms, shape, kernel_factory
        )
        several = Reductions(lanes_of.reducers(threads), len(made.reductions))
        compute = make_rows(ph.Rows((), made.samples.fields), rows.schema, rows.time, made.ready.schema)
        if showing:
            for reducer in several.reducers:
                if isinstance(reducer, KernelReducer):
                    reducer.over.slide(frozenset())

        def reduce(partitions: SortedPartitions, frames: Sequence[Frames]) -> list[pa.Array]:
            if not len(frames[0]):
                return [pa.nulls(0, reduction.type) for reduction in made.reductions]
            ready = (
                partitions.arrived_rows.batch
                if _are_there(made.samples, partitions)
                else compute(partitions.arrived_rows.batch)
            )
            columns = dict(zip(ready.schema.names, ready.columns, strict=True))
            return several.arrays(
                SortedPartitions(
                    partitions.arrived_rows, partitions.bounds, partitions.times, columns=columns
                ),
                frames,
            )

        return reduce


def _are_there(samples: ir.Samples, partitions: SortedPartitions) -> bool:
    """Return whether the partition's batch already has all argument columns."""
    return all(field.expr == ex.Column(field.name) for field in samples.fields) and {
        field.name for field in samples.fields
    } <= set(partitions.arrived_rows.batch.schema.names)


def span_reading(over: temporal.WindowReduction) -> SpanReading:
    """Return how samples enter and leave a span."""
    match over.span:
        case temporal.Rolling(size=size):
            return SpanReading(over.source, EVER if size >= NO_END else ROLLING, size, 1, over.shift)
        case temporal.Last(rows=rows):
            return SpanReading(over.source, LAST, rows, 1, over.shift)
        case temporal.Window(size=size, every=every):
            return SpanReading(over.source, WINDOW, size, every, over.shift)
        case temporal.Per(size=size):
            return SpanReading(over.source, PER, size, size, over.shift)


def is_reduced_alone(name: str, program: temporal.Program) -> bool:
    """Return whether the only readers of an object are reductions of the output, over its samples alone."""
    readers = [obj for obj in program.objects if name in temporal.sources_of(obj.body)]
    return [reader.name for reader in readers] == [program.output] and all(
        isinstance(reader.body, temporal.Expression)
        and all(access.source != name for access in reader.body.accesses)
        and not _begins_with(reader.body, name, program)
        for reader in readers
    )


def _begins_with(body: temporal.Expression, name: str, program: temporal.Program) -> bool:
    """Return whether a lenient object may begin with a mark of `name` that is not a sample."""
    schemas = {obj.name: obj.schema for obj in program.objects}
    grids = temporal.Window | temporal.Per  # a window begins with a sample
    walked = any(
        reduction.source == name and not isinstance(reduction.span, grids) for reduction in body.reductions
    )
    return walked and is_lenient(body, schemas)


def is_accessed(name: str, program: temporal.Program) -> bool:
    """Return whether the output or a reader uses an object's value at instants, not only its samples."""
    if program.output == name:
        return True
    for obj in program.objects:
        match obj.body:
            case temporal.Expression(accesses=accesses) | temporal.Feedback(accesses=accesses):
                if any(access.source == name for access in accesses):
                    return True
            case body if name in temporal.sources_of(body):
                return True
    return False


def retention(program: temporal.Program) -> Retention:
    """Return how far back the points of a program reach."""
    samples, levels, sequential, forgets = 1, 1, False, True
    schemas = {obj.name: obj.schema for obj in program.objects}
    for obj in program.objects:
        match obj.body:
            case temporal.Expression(reductions=reductions) | temporal.Feedback(reductions=reductions):
                for over in reductions:
                    match over.span:
                        case temporal.Last(rows=rows):
                            # Only for an input is the number of rows behind a number of samples known.
                            sequential |= not isinstance(program[over.source].body, temporal.Sampled)
                            # One alone is taken for what holds, which may be nothing: of two, only samples count.
                            samples = max(samples, rows, 2)
                        case temporal.Rolling(size=size):
                            sequential |= size >= NO_END
            case temporal.Resample(method=method, max_gap=gap):
                levels, forgets = levels + 1, forgets and (method == "last" or gap is not None)
            case temporal.SampleAndHold():
                # What it holds is known from an old sample; of the output, from its open interval.
                levels, forgets = levels + 1, forgets and obj.name == program.output
            case temporal.Chop():
                levels += 1
        if isinstance(obj.body, temporal.Feedback):
            samples, levels = max([samples, *(own.back + 1 for own in obj.body.own)]), levels + 1
            forgets = False
        # What has a value of its own has it for as long as its key is known.
        forgets &= not (isinstance(obj.body, temporal.Expression) and is_lenient(obj.body, schemas))
    forgets &= samples == 1 and not sequential
    return Retention(reach(program), samples, levels, sequential, forgets)
