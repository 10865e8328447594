"""The plan that earlier runs of one operator have found: a later run begins with it. A plain value, sent as JSON.

Only choices that never change an answer are kept. A run checks each of them against its own query, and changes them like
its own: an assumption that fails gives way, and the next profile is due when as many rows have passed as in one long run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

Order = tuple[tuple[int, ...], ...]


class Wait(NamedTuple):
    """A choice that failed: how many rows it waits each time, and how many are left."""

    what: str
    rows: int
    left: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """When the rows of an operator are profiled next, in rows from now, and which choices wait until when."""

    next: int = 0
    gap: int = 1
    waits: tuple[Wait, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownPlan:
    """What `runs` runs over `rows` rows have found: a key table, its ranges if dense, states, and the order of the filter.

    `key_table` is empty if no table was ever made. `changes` counts what the runs have changed while they ran.

    >>> KnownPlan(rows=4_000_000, runs=4, key_table="hash", order=((1,), (0,))).show()
    'key table hash, filter order 1, then 0 (4 runs, 4,000,000 rows, 0 changes)'
    """

    rows: int = 0
    runs: int = 0
    changes: int = 0
    key_table: str = ""
    ranges: tuple[tuple[int, int], ...] = ()
    nullable: tuple[str, ...] = ()
    wide: bool = False
    order: Order | None = None
    schedule: Schedule = Schedule()

    def show(self) -> str:
        """Render the choices and what they rest on; no value of a row occurs in it."""
        choices = [f"key table {self.key_table}"] if self.key_table else []
        choices += ["128-bit sums"] if self.wide else []
        choices += [f"null flags for {', '.join(self.nullable)}"] if self.nullable else []
        if self.order is not None:
            groups = (" & ".join(map(str, group)) for group in self.order)
            choices.append(f"filter order {', then '.join(groups)}")
        seen = f"{self.runs} runs, {self.rows:,} rows, {self.changes} changes"
        return f"{', '.join(choices) or 'as planned'} ({seen})"


def better(one: KnownPlan | None, other: KnownPlan) -> KnownPlan:
    """Return the plan that rests on more rows."""
    return other if one is None or (other.rows, other.runs) > (one.rows, one.runs) else one


def encoded(plans: Mapping[str, KnownPlan]) -> str:
    """Encode plans by operator.

    >>> decoded(encoded({"views": KnownPlan(rows=3, ranges=((0, 9),))}))["views"].ranges
    ((0, 9),)
    """
    return json.dumps({name: asdict(plan) for name, plan in plans.items()})


def decoded(text: str) -> dict[str, KnownPlan]:
    """Decode the output of `encoded`. What another version wrote differently is left out: it only costs time."""
    try:
        return {str(name): _plan(**plan) for name, plan in json.loads(text).items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _plan(**given: Any) -> KnownPlan:
    ranges = tuple((int(low), int(high)) for low, high in given["ranges"])
    order = given["order"]
    groups = () if order is None else tuple(tuple(int(number) for number in group) for group in order)
    numbers = sorted(number for group in groups for number in group)
    plan = given["schedule"]
    waits = tuple(Wait(str(what), int(rows), int(left)) for what, rows, left in plan["waits"])
    return KnownPlan(
        int(given["rows"]),
        int(given["runs"]),
        int(given["changes"]),
        str(given["key_table"]),
        ranges,
        tuple(map(str, given["nullable"])),
        bool(given["wide"]),
        groups if numbers and all(groups) and numbers == list(range(len(numbers))) else None,
        Schedule(int(plan["next"]), int(plan["gap"]), waits),
    )
