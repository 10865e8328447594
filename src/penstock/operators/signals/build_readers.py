"""Analyse the readers of a temporal object: whether they use its value at instants, its marks, or only its samples."""

from __future__ import annotations

from penstock.ir.signals import nodes as temporal
from penstock.ir.signals.scope import NO_END, is_lenient, reach
from penstock.operators.signals.retention import Retention


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
    """Tell how far back the points of a program reach."""
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
