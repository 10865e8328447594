"""Names of streams, and unique names of generated columns. Unnamed streams are stream_1, stream_2, … in plan order."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

from penstock.errors import BindingError
from penstock.plan.nodes import Plan, Source, Table, rewrite
from penstock.plan.schema import sources_of, tables_of
from penstock.sources.bound import Bound
from penstock.types.choices import repeated


class Unnamed(str):
    """The placeholder name of an unnamed stream; compares by identity."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Named:
    """A plan with all streams and tables named, and its sources; computed once for all runs.

    `names` maps old names to new ones.
    """

    plan: Plan
    names: Mapping[str, str]
    sources: tuple[Source, ...]
    tables: tuple[Table, ...]


def _names_of(plan: Plan) -> dict[str, str]:
    """Map every stream and table of a plan to its name."""
    streams, tables = ([leaf.name for leaf in found] for found in (sources_of(plan), tables_of(plan)))
    taken = {str(name) for name in (*streams, *tables) if not isinstance(name, Unnamed)}
    return _numbered(streams, "stream_{}", taken) | _numbered(tables, "table_{}", taken)


def _numbered(names: list[str], pattern: str, taken: set[str]) -> dict[str, str]:
    free = (name for name in map(pattern.format, range(1, len(names) + len(taken) + 1)) if name not in taken)
    return {name: next(free) if isinstance(name, Unnamed) else name for name in names}


def named(plan: Plan) -> Named:
    """Replace placeholder names in the plan."""
    names = _names_of(plan)

    def rule(node: Plan) -> Plan:
        return replace(node, name=names[node.name]) if isinstance(node, Source | Table) else node

    renamed = rewrite(plan, rule)
    return Named(renamed, names, sources_of(renamed), tables_of(renamed))


def single_named(plan: Plan) -> Plan:
    """Reject two different streams of one name."""
    names = [*(source.name for source in sources_of(plan)), *(table.name for table in tables_of(plan))]
    twice = repeated(names)
    if twice:
        raise BindingError(f"two different streams are named {twice[0]!r}; give one of them another name")
    return plan


def together(first: Mapping[str, Bound], second: Mapping[str, Bound]) -> dict[str, Bound]:
    """Combine the data of two streams, by name."""
    data = dict(first)
    for name, bound in second.items():
        if data.setdefault(name, bound) is not bound:
            raise BindingError(f"two streams named {name!r} have different data; name one of them otherwise")
    return data


def free_name(name: str, taken: Container[str]) -> str:
    """Return a column name that is not taken."""
    while name in taken:
        name += "'"
    return name
