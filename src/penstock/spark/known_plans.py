"""Plans that tasks have found for their operators: kept in each Python process of Spark, and sent with results.

A task begins with the best plan of its process: from earlier tasks there, from tasks whose payloads were received, or from
the driver when the query started. Tasks report theirs to the driver by an accumulator, if the session
has one: `explain("spark")` shows them, and later queries ship them. A plan never changes an answer, so nothing depends on which
of the reports arrive.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.caches import CACHES
from penstock.runtime.adapt.known_plan import KnownPlan, better, decoded, encoded
from penstock.spark.exchange import ShufflePayload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Report: TypeAlias = Any  # an accumulator of Spark, or None
MOST_QUERIES = 256
PLANS = "plans"
_MOST_HELD = 64  # reports that an accumulator holds at most: the driver has taken the others


class KnownPlans:
    """The plans of operators by query, for the queries used last.

    >>> known = KnownPlans()
    >>> found = known.learn("a query", {"views": KnownPlan(rows=10, runs=1, key_table="hash")})
    >>> elsewhere = KnownPlans()
    >>> elsewhere.take(found)
    >>> elsewhere.of("a query")["views"].key_table
    'hash'
    """

    def __init__(self, most: int = MOST_QUERIES) -> None:
        self._most = most
        self._plans: OrderedDict[str, dict[str, KnownPlan]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._plans)

    def of(self, query: str) -> dict[str, KnownPlan]:
        """Return the plans of a query, given as text."""
        with self._lock:
            return dict(self._used(digest(query)))

    def learn(self, query: str, found: Mapping[str, KnownPlan]) -> str:
        """Keep the plans that rest on more rows; return those of the query as text, empty if no rows were seen."""
        seen = {name: plan for name, plan in found.items() if plan.rows}
        if not seen:
            return ""
        self._keep(digest(query), seen)
        return json.dumps([digest(query), encoded(self.of(query))])

    def take(self, text: str) -> None:
        """Keep what another process has learnt; ignore what another version wrote differently."""
        try:
            name, plans = json.loads(text)
        except (ValueError, TypeError):
            return
        self._keep(str(name), decoded(str(plans)))

    def encoded(self, query: str) -> str:
        """Return the plans of a query as text, empty if there are none."""
        found = self.of(query)
        return json.dumps([digest(query), encoded(found)]) if found else ""

    def show(self, query: str) -> list[str]:
        """Describe the plans of a query, a line for each operator."""
        return [f"known plan of ~{name}: {plan.show()}" for name, plan in sorted(self.of(query).items())]

    def changes(self, prefix: str) -> int:
        """Count what runs of a query have changed; the query is given by the first digits of its digest."""
        with self._lock:
            plans = [
                plan
                for name, held in self._plans.items()
                if name.startswith(prefix)
                for plan in held.values()
            ]
        return sum(plan.changes for plan in plans)

    def _keep(self, name: str, found: Mapping[str, KnownPlan]) -> None:
        with self._lock:
            held = self._used(name)
            for operator, plan in found.items():
                held[operator] = better(held.get(operator), plan)
            if held:
                self._plans[name] = held
            while len(self._plans) > self._most:
                self._plans.popitem(last=False)

    def _used(self, name: str) -> dict[str, KnownPlan]:
        if name in self._plans:
            self._plans.move_to_end(name)
        return self._plans.get(name, {})


@cache
def known_plans() -> KnownPlans:
    """Return the known plans of this process."""
    return KnownPlans()


def digest(query: str) -> str:
    """Name a query without its text."""
    return hashlib.sha256(query.encode()).hexdigest()


# --- with results ---------------------------------------------------------------------------------------------


def plans_sent(found: str, shard: int, task: int) -> Iterator[ShufflePayload]:
    """Send plans to one of the tasks behind the shuffle."""
    if found:
        yield ShufflePayload(shard, task, 0, PLANS, found.encode())


def without_plans(payloads: Iterable[ShufflePayload], report: Report = None) -> Iterator[ShufflePayload]:
    """Take the plans out of received payloads, and pass them on to the driver."""
    for payload in payloads:
        if payload.name != PLANS:
            yield payload
            continue
        text = bytes(payload.payload).decode()
        known_plans().take(text)
        if report is not None:
            report.add((text,))


# --- to the driver --------------------------------------------------------------------------------------------


def report_to_driver(spark: SparkSession) -> Report:
    """Return an accumulator whose additions reach `known_plans` of the driver; a Connect client has none."""
    return _accumulator(spark.sparkContext) if hasattr(spark, "_jsc") else None


@CACHES.results(most=4)
def _accumulator(context: Any) -> Report:
    """Make one accumulator for all queries of a context, since Spark never forgets one."""
    return context.accumulator((), _Reports())


class _Reports:
    """How Spark adds reports up: each process takes them over, so that few are held."""

    def zero(self, value: tuple[str, ...]) -> tuple[str, ...]:
        return ()

    def addInPlace(self, held: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:  # noqa: N802 - Spark's name
        for text in more:
            known_plans().take(text)
        return (*held, *more)[-_MOST_HELD:]
