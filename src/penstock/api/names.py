"""Names of streams. Those without one are called stream_1, stream_2, … in plan order."""

from __future__ import annotations

from dataclasses import replace

from penstock.plan.nodes import Intervals, Plan, Source, Union
from penstock.plan.schema import sources_of


class Unnamed(str):
    """The name of a stream that has none yet: equal to itself only, whatever it spells."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__


def names_of(plan: Plan) -> dict[str, str]:
    """Give every stream of a plan the name it goes by."""
    sources = sources_of(plan)
    taken = {str(source.name) for source in sources if not isinstance(source.name, Unnamed)}
    free = (
        name for name in map("stream_{}".format, range(1, len(sources) + len(taken) + 1)) if name not in taken
    )
    return {
        source.name: next(free) if isinstance(source.name, Unnamed) else source.name for source in sources
    }


def named(plan: Plan) -> Plan:
    """Write the names of streams into the plan."""
    return _named(plan, names_of(plan))


def _named(plan: Plan, names: dict[str, str]) -> Plan:
    match plan:
        case Source(name=name):
            return replace(plan, name=names[name])
        case Union(inputs=inputs) | Intervals(inputs=inputs):
            return replace(plan, inputs=tuple(_named(each, names) for each in inputs))
        case _:
            return replace(plan, input=_named(plan.input, names))
