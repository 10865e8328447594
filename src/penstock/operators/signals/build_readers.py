"""Analyse the readers of a temporal object: whether they use its value at instants, its marks, or only its samples."""

from __future__ import annotations

from penstock.ir.signals import nodes as temporal
from penstock.ir.signals.scope import is_lenient


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
