"""`python -m benchmarks adapt`: the figures, printed, saved and drawn."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

import penstock as pk
from benchmarks.adapt.runs import Plan, Progress, Runner, changes_of, run
from benchmarks.adapt.workloads import (
    ALONE,
    PREDICATES,
    SURVIVOR_FILTERS,
    Phase,
    check_survivors,
    keys_query,
    predicates_query,
    survivor_rows,
)
from benchmarks.plot import save_panels
from benchmarks.report import save_json
from benchmarks.run import print_machine
from penstock.calibration.machine import facts

CROSSING = (0.0, 0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25, 0.0)
APART = 2.0  # best and worst order differ by so much: there an order matters


@dataclass(frozen=True, slots=True)
class AdaptRequest:
    """The flags of the suite, as given."""

    figures: str
    rows: int
    pushes: int
    quick: bool
    json: Path | None
    plot: Path | None
    processor: bool = False


@dataclass
class Result:
    """A figure: nanoseconds per row of contenders in each phase, the series of some, and what was changed."""

    name: str
    phases: list[str]
    points: dict[str, list[float]]
    series: dict[str, list[float]]
    changes: list[str]
    verdicts: list[str] = field(default_factory=list)


def run_adapt(request: AdaptRequest) -> None:
    """Run the figures asked for."""
    console = Console()
    progress: Progress = lambda text: console.print(text, style="dim")  # noqa: E731
    machine = facts() | {"compiler": "no C++ takes part"}
    print_machine(console, machine)
    console.print(f"load of the machine: {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
    chosen = request.figures.split(",") if request.figures else list(FIGURES)
    results = [FIGURES[name](request, progress) for name in chosen]
    for result in results:
        print_result(result, console)
    if request.json is not None:
        save_json(
            request.json,
            {"suite": "adapt", "machine": machine, "figures": [vars(result) for result in results]},
        )
    if request.plot is not None:
        panels = [partial(draw, result=result) for result in results]
        save_panels(request.plot, "Adaptation while a query runs", panels, 1, height=4, dpi=100)


# --- figures --------------------------------------------------------------------------------------------


def key_range(request: AdaptRequest, progress: Progress) -> Result:
    """Figure 12: the range of keys grows tenfold at half-time."""
    rows, pushes = request.rows, request.pushes
    phases = [Phase("1,000 keys"), Phase("10,000 keys", keys=10_000)]
    runners = [
        Runner("adaptive", pk.Engine(threads=1)),
        Runner(
            "dense", pk.Engine(threads=1, assume={"key table": "dense", "filter order": [[0, 1, 2, 3, 4]]})
        ),
        Runner("hash", pk.Engine(threads=1, assume={"key table": "hash"})),
        Runner("generic", pk.Engine(threads=1, adaptive=False)),
    ]
    plan = Plan(predicates_query(rows), phases, rows, 2 * pushes, pushes)
    run(plan, runners, progress)
    result = result_of("figure 12: key range x 10", plan, runners, runners)
    best = [min(result.points[runner.name][phase] for runner in runners[1:]) for phase in range(len(phases))]
    ahead = [best[phase] / result.points["adaptive"][phase] for phase in range(len(phases))]
    result.verdicts.append(
        f"adaptive at {' and '.join(f'{ratio:.2f}' for ratio in ahead)} x the best pinned variant"
    )
    slow, total = 0.0, 0.0
    for seconds in runners[0].seconds[1]:
        total += seconds
        slow = total if seconds * 1e9 / rows > best[1] / 0.95 else slow
        if total > 0.2:
            break
    result.verdicts.append(f"slower than 0.95 x the best for the first {slow * 1000:.0f} of 200 ms")
    return result


def predicates(request: AdaptRequest, progress: Progress) -> Result:
    """Figure 13: two of five predicates cross, from 0 to 100 % and back; all 120 orders are measured."""
    rows, crossing = request.rows, CROSSING[::2] if request.quick else CROSSING
    phases = [Phase(f"x {share:.0%}", x=share, y=1 - share) for share in crossing]
    orders = list(permutations(range(len(PREDICATES))))[:: 10 if request.quick else 1]
    pinned = [
        Runner(
            "".join(PREDICATES[number] for number in order),
            pk.Engine(threads=1, assume={"filter order": [[number] for number in order]}),
            late=True,
        )
        for order in orders
    ]
    # 24 orders do the same work where one conjunct drops all rows: as many turns for one contender as for those.
    twins = [
        Runner(f"adaptive {number}", pk.Engine(threads=1)) for number in range(2 if request.quick else 24)
    ]
    plan = Plan(predicates_query(rows), phases, rows, request.pushes, 4)
    middle = len(pinned) // 2  # of a round: the first contender would meet the cold caches of new rows
    run(plan, [*pinned[:middle], *twins, *pinned[middle:]], progress)
    result = result_of("figure 13: predicate order", plan, [*twins, *pinned], twins[:1])
    result.points["adaptive"] = [
        min(result.points[twin.name][phase] for twin in twins) for phase in range(len(phases))
    ]
    result.series = {"adaptive": result.series[twins[0].name]}
    for phase, name in enumerate(result.phases):
        orders_here = [result.points[runner.name][phase] for runner in pinned]
        best, worst, own = min(orders_here), max(orders_here), result.points["adaptive"][phase]
        matters = "" if worst >= APART * best else " (orders differ by less than 2 x)"
        result.verdicts.append(
            f"{name}: adaptive {own:.2f}, best order {best:.2f}, worst {worst:.2f} ns: {best / own:.2f} x the best{matters}"
        )
    result.points = {
        "adaptive": result.points["adaptive"],
        "best order": [
            min(result.points[runner.name][phase] for runner in pinned) for phase in range(len(phases))
        ],
        "worst order": [
            max(result.points[runner.name][phase] for runner in pinned) for phase in range(len(phases))
        ],
    }
    return result


def sharing(request: AdaptRequest, progress: Progress, keys: int = 1_000_000) -> Result:
    """Figure 14: 1 M keys, alike in frequency, then most rows of one key, then alike again; two threads."""
    rows = 4 * request.rows
    clock = time.process_time if request.processor else time.perf_counter
    phases = [
        Phase("uniform", keys=keys),
        Phase("heavy hitter", keys=keys, hot=0.6),
        Phase("uniform again", keys=keys),
    ]
    ways = ("private", "partitioned", "shared")
    runners = [
        Runner("adaptive", pk.Engine(threads=2)),
        *(Runner(way, pk.Engine(threads=2, assume={"key table shared": way})) for way in ways),
        Runner("one thread", pk.Engine(threads=1)),
    ]
    plan = Plan(keys_query(rows), phases, rows, max(request.pushes // 2, 5), 4, clock)
    run(plan, runners, progress)
    result = result_of(
        f"figure 14: {keys:,} keys, two threads{' together' if request.processor else ''}",
        plan,
        runners,
        runners[:1],
    )
    for phase, name in enumerate(result.phases):
        best = min(ways, key=lambda way: result.points[way][phase])
        own, one = result.points["adaptive"][phase], result.points["one thread"][phase]
        result.verdicts.append(
            f"{name}: adaptive {result.points[best][phase] / own:.2f} x the best ({best}), {one / own:.2f} x one thread"
        )
    return result


def steady(request: AdaptRequest, progress: Progress) -> Result:
    """Nothing changes: what profiles and sensors cost."""
    rows = request.rows
    pinned = {
        "key table": "dense",
        "filter order": [[0, 1, 2, 3, 4]],
        "sums": "64 bits",
        "null flags": "none",
    }
    runners = [
        Runner("adaptive", pk.Engine(threads=1)),
        Runner("pinned", pk.Engine(threads=1, assume=pinned)),
    ]
    plan = Plan(
        predicates_query(rows), [Phase("steady", x=1.0, y=1.0)], rows, 4 * request.pushes, 2 * request.pushes
    )
    run(plan, runners, progress)
    result = result_of("nothing changes", plan, runners, runners)
    ratio = sum(runners[1].seconds[0]) / sum(runners[0].seconds[0])
    result.verdicts.append(f"adaptive at {ratio:.3f} x pinned in all, {_best_ratio(result):.3f} x at best")
    return result


def survivors(request: AdaptRequest, progress: Progress) -> Result:
    """Dear conditions behind one that keeps 0.1 % of the rows, beside that one alone."""
    rows = 4 * request.rows
    table, engine = survivor_rows(rows), pk.Engine(threads=1)
    stream = pk.from_arrow(table, time="t", name="rows")
    queries = {
        name: stream.filter(where).window(rows // 10).agg(n=pk.count())
        for name, where in SURVIVOR_FILTERS.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in queries}
    for turn in range(request.pushes):
        progress(f"turn {turn + 1} of {request.pushes}: {len(queries)} filters, {rows:,} rows")
        for name, query in queries.items():
            begin = time.thread_time()
            found = query.collect(engine=engine)
            seconds[name].append(time.thread_time() - begin)
            check_survivors(name, table, pc.sum(found.column("n")).as_py() or 0)
    points = {name: [round(min(taken) * 1e9 / rows, 3)] for name, taken in seconds.items()}
    series = {name: [round(one * 1e9 / rows, 3) for one in taken] for name, taken in seconds.items()}
    alone = points[ALONE][0]
    verdicts = [
        f"{name}: {point / alone:.2f} x {ALONE}" for name, (point,) in points.items() if name != ALONE
    ]
    return Result("survivors of a == 1", ["0.1 %"], points, series, [], verdicts)


def _best_ratio(result: Result) -> float:
    return result.points["pinned"][0] / result.points["adaptive"][0]


Figure = Callable[[AdaptRequest, Progress], Result]
FIGURES: dict[str, Figure] = {
    "12": key_range,
    "13": predicates,
    "14": sharing,
    "14x10": partial(sharing, keys=10_000_000),
    "steady": steady,
    "survivors": survivors,
}


# --- reports --------------------------------------------------------------------------------------------


def result_of(name: str, plan: Plan, runners: Sequence[Runner], shown: Sequence[Runner]) -> Result:
    """Collect what contenders took, in nanoseconds per row."""

    def nanoseconds(seconds: float) -> float:
        return round(seconds * 1e9 / plan.rows, 3)

    points = {
        runner.name: [nanoseconds(runner.best(phase, plan.measured)) for phase in range(len(plan.phases))]
        for runner in runners
    }
    series = {
        runner.name: [
            nanoseconds(seconds) for phase in sorted(runner.seconds) for seconds in runner.seconds[phase]
        ]
        for runner in shown
    }
    return Result(name, [phase.name for phase in plan.phases], points, series, changes_of(runners[0]))


def print_result(result: Result, console: Console) -> None:
    """Print nanoseconds per row by phase, the changes and the verdicts."""
    table = Table(title=f"{result.name} (ns per row)", title_justify="left")
    for title in ("", *result.phases):
        table.add_column(title, justify="right")
    for name, points in result.points.items():
        table.add_row(name, *(f"{point:.2f}" for point in points))
    console.print(table)
    for line in (*result.changes, *result.verdicts):
        console.print(line, highlight=False, soft_wrap=True)


def draw(axis: Any, result: Result) -> None:
    """Draw the time of each push; phases by vertical lines, pinned variants by their best in each phase."""
    pushes = max(map(len, result.series.values()))
    width = pushes / len(result.phases)
    for name, values in result.series.items():
        axis.plot(values, label=name)
    for name, points in result.points.items():
        if name not in result.series:
            edges = [width * place for place in range(len(points) + 1)]
            axis.stairs(points, edges, label=name, linestyle="--")
    for place, name in enumerate(result.phases):
        axis.axvline(width * place, color="#bdc3c7", linewidth=0.5)
        axis.annotate(name, (width * place, 0), fontsize=7)
    axis.set_title(result.name)
    axis.set_xlabel("push")
    axis.set_ylabel("ns per row")
    shown = sorted(value for values in (*result.series.values(), *result.points.values()) for value in values)
    axis.set_ylim(0, 1.5 * shown[len(shown) * 9 // 10])  # the first push compiles: it would hide the others
    axis.legend(fontsize=7)
