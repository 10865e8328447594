"""Choose how a query is distributed over the tasks of a Spark job, with a reason.

* `slices`: each task runs the whole query over a time slice plus a halo for windows that reach beyond it; nothing
  is shuffled. Queries over single rows are the simplest case: any cut is valid.
* `fragments`: each task folds its rows into panes; the states of the panes, a few rows, are shuffled and merged.
* `keys`: rows are shuffled by key, and each task runs the whole query over its keys.
* `times`: rows are shuffled by time, and each task runs the whole query over a range of time plus a halo.
* `one`: one task runs the query; correct, but not parallel.

The choice is a pure function of the optimised program and of statistics of the data. Which strategies a query
allows does not depend on the data (`possible`); which of them is best does (`choose`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.analysis.boundaries import Finite, boundaries
from penstock.analysis.panes import depends_on_order, in_panes
from penstock.analysis.partition_keys import Undivided, looks_up, partition_keys
from penstock.analysis.slice_boundaries import (
    Carry,
    Counts,
    Held,
    Sessions,
    carry_in,
    held_samples,
    slice_borders,
    without_carry,
)
from penstock.errors import EngineError
from penstock.expr.nodes import Expr
from penstock.ir import nodes as ir
from penstock.ir.nodes import Join, Table
from penstock.types.time import describe_reach
from penstock.types.windows import Lookup, TimeWindow

SLICES, FRAGMENTS, KEYS, TIMES, ONE = STRATEGIES = "slices", "fragments", "keys", "times", "one"
# Largest ratio of rows read by slices to rows present before a shuffle is preferred: a guess, not measured yet.
MOST_READ_AGAIN = 1.25
# Largest ratio of the longest slice to an even share before a shuffle is preferred.
MOST_UNEVEN = 1.5
# Least length of the data, in halos, at which two ranges of time copy at most a quarter of the rows.
LEAST_HALOS = 4


@dataclass(frozen=True, slots=True)
class Halo:
    """How far, in ticks, results reach into each stream before and after their own time.

    If all results are windows of one grid, `border` is the end of a window and `step` the distance to the next end:
    in slices cut at such times, results reach `step - 1` ticks less far back. Tumbling windows then need no halo.
    `carry` describes an as-of join that also needs the last row of each key before the halo. `unit` is the length
    of a tick, for printing.
    """

    past: int
    future: int
    step: int = 1
    border: int = 0
    carry: Carry | None = None
    unit: str | None = None
    held: Held | None = None

    @property
    def length(self) -> int:
        """How far results reach in ranges of time that are cut at ends of windows."""
        return self.past - self.step + 1 + self.future

    def __str__(self) -> str:
        reach = describe_reach(self.past, self.future, self.unit, "their time")
        if self.held is not None:
            return f"{reach}, and to the nearest samples of {', '.join(map(repr, self.held.streams))}"
        return (
            reach
            if self.carry is None
            else f"{reach}, and to the last row{' of each key' if self.carry.keys else ''} in {self.carry.right!r}"
        )


@dataclass(frozen=True, slots=True)
class Possible:
    """The strategies a program allows: for each its requirements, or the reason why it is not applicable."""

    rows: bool
    slices: Halo | Sessions | Counts | str
    fragments: tuple[str, ...] | str
    keys: Mapping[str, tuple[Expr, ...]] | str
    ordered: bool

    def obstacle(self, strategy: str) -> str | None:
        """Return why a strategy is not applicable; None if it is."""
        ways = {SLICES: self.slices, FRAGMENTS: self.fragments, KEYS: self.keys, TIMES: self.times}
        found = ways.get(strategy)
        return found if isinstance(found, str) else None

    @property
    def times(self) -> Halo | str:
        """Return the reach of results, if it is a length of time alone."""
        match self.slices:
            case Halo(carry=None, held=None) as halo:
                return halo
            case str() as obstacle:
                return obstacle
            case other:
                return f"results reach {other}"


@dataclass(frozen=True, slots=True)
class DataFacts:
    """Statistics of the data: whether all of it is in files, and how many rows slices would read.

    `read_again` is the ratio of rows read by slices to rows present; None if times are not known. `uneven` is the
    ratio of the rows the longest slice reads to those it would read if files could be cut anywhere. `span` is the
    time from the first row to the last, in ticks; None if it is not known.
    """

    files: bool
    tasks: int
    read_again: float | None = None
    uneven: float = 1.0
    span: int | None = None


@dataclass(frozen=True, slots=True)
class StrategyChoice:
    strategy: str
    reason: str
    forced: bool = False


def possible(program: ir.Program) -> Possible:
    """Return the strategies a program allows."""
    keys = partition_keys(program)
    return Possible(
        rows=not any(_gathers(obj.body) for obj in program.objects),
        slices=slice_borders(program) or _halo(program),
        fragments=_first_windows(program),
        keys=keys.reason if isinstance(keys, Undivided) else keys,
        ordered=any(depends_on_order(obj.body) for obj in program.objects),
    )


def choose(found: Possible, facts: DataFacts, force: str | None = None) -> StrategyChoice:
    """Choose the strategy, or check that the forced one is applicable."""
    if force is not None:
        return _forced(found, facts, force)
    if found.rows:
        return StrategyChoice(SLICES, "rows are independent: any cut is valid")
    if facts.tasks == 1:
        return StrategyChoice(ONE, "there is work for one task only")
    why_not = {strategy: _obstacle(found, facts, strategy) for strategy in STRATEGIES[:-1]}
    for strategy, obstacle in why_not.items():
        if obstacle is None:
            return StrategyChoice(strategy, _reason(found, facts, strategy, why_not))
    if _worth_it(found, facts):
        return StrategyChoice(SLICES, _reason(found, facts, SLICES, why_not))
    return StrategyChoice(ONE, "; ".join(f"no {name}: {why}" for name, why in why_not.items()))


def pane_obstacle(found: Possible) -> str | None:
    """Return why rows of an unbounded stream must be shuffled to their shards; None if states of panes suffice."""
    if isinstance(found.fragments, str):
        return found.fragments
    if found.ordered:
        return "rows of equal time are ordered by their position, which panes of different tasks do not share"
    return None


def described(found: Possible) -> list[str]:
    """Describe, one line per strategy, whether a query allows it; statistics decide which one is used."""
    if found.rows:
        return ["slices: rows are independent, any cut is valid"]
    return [*_ways(found), f"on a stream without end: {sent(pane_obstacle(found))}"]


def sent(obstacle: str | None) -> str:
    """Describe what an unbounded stream shuffles."""
    if obstacle is None:
        return "what panes hold is sent to shards, a pane being late as a whole or not at all"
    return f"rows are sent to shards, since {obstacle}"


def _ways(found: Possible) -> list[str]:
    ways = {
        SLICES: f"over ordered files, results reaching {found.slices}",
        FRAGMENTS: f"states of the panes of {_names(found.fragments)} are shuffled",
        KEYS: "rows are shuffled by key",
    }
    lines = [
        f"{name}: {way}" if found.obstacle(name) is None else f"no {name}: {found.obstacle(name)}"
        for name, way in ways.items()
    ]
    alone = all(line.startswith("no ") for line in lines)
    if alone and found.obstacle(TIMES) is None:
        return [*lines, f"times: rows are shuffled by time, results reaching {found.times}"]
    return [*lines, *(["one: a single task does it all, which is slow"] if alone else [])]


def _names(windows: tuple[str, ...] | str) -> str:
    return ", ".join(f"~{name}" for name in windows)


def _forced(found: Possible, facts: DataFacts, force: str) -> StrategyChoice:
    if force not in STRATEGIES:
        raise EngineError(f"there is no strategy {force!r}; there are {', '.join(map(repr, STRATEGIES))}")
    obstacle = found.obstacle(force) or _unfit(found, facts, force)
    if obstacle is not None and not (force == SLICES and found.rows):
        raise EngineError(f"this query cannot run in {force}: {obstacle}")
    return StrategyChoice(force, "requested", forced=True)


def _obstacle(found: Possible, facts: DataFacts, strategy: str) -> str | None:
    """Return why a strategy is not chosen: not applicable, or too expensive."""
    obstacle = found.obstacle(strategy) or _unfit(found, facts, strategy)
    if obstacle is not None or strategy != SLICES:
        return obstacle
    why = "files overlap in time, or windows are long"
    if (facts.read_again or 1) > MOST_READ_AGAIN:
        return f"{facts.read_again:.2g} times the rows would be read: {why}"
    if facts.uneven > MOST_UNEVEN:
        return f"one task would read {facts.uneven:.2g} times its share: {why}"
    return None


def _worth_it(found: Possible, facts: DataFacts) -> bool:
    """Return whether slices, however many rows they read twice, are at most half as long as a task that does it all."""
    possible_here = found.obstacle(SLICES) is None and _unfit(found, facts, SLICES) is None
    return possible_here and max(facts.uneven, facts.read_again or 1) * 2 <= facts.tasks


def _unfit(found: Possible, facts: DataFacts, strategy: str) -> str | None:
    """Return what the data lacks for a strategy."""
    if strategy == SLICES and not facts.files:
        return "a DataFrame has no statistics of its times"
    if strategy == SLICES and facts.read_again is None:
        return "the files have no statistics of their times, or are not in the required order"
    if strategy == FRAGMENTS and found.ordered and not facts.files:
        return "rows of equal time are ordered by their values, which panes do not keep"
    if strategy == TIMES and facts.span is not None and isinstance(found.times, Halo):
        short = facts.span < LEAST_HALOS * found.times.length
        return "results reach about as far as the data is long" if short else None
    return None


def _reason(found: Possible, facts: DataFacts, strategy: str, why_not: Mapping[str, str | None]) -> str:
    match strategy:
        case "slices":
            again = f"{facts.read_again:.2f} times the rows are read"
            return f"files are ordered by time, results reach {found.slices}: no shuffle, and {again}"
        case "fragments":
            return f"states of panes are few and can be merged (no slices: {why_not[SLICES]})"
        case "times":
            return f"rows are shuffled by time, results reach {found.times} (no keys: {why_not[KEYS]})"
        case _:
            return f"rows of one key meet in one task (no fragments: {why_not[FRAGMENTS]})"


# --- applicable strategies ----------------------------------------------------------------------------------


def _gathers(body: ir.Body) -> bool:
    return not isinstance(body, ir.Input | ir.Samples | ir.Merge | Table) and not looks_up(body)


def _halo(program: ir.Program) -> Halo | str:
    output = program[program.output]
    if any(_gives_table(obj.body) for obj in program.objects):
        return "rows of a table without a partner are known at the end only"
    if output.time.column not in output.schema.names:
        return "the result has no time"
    carry = carry_in(program)
    finite = _lengths(program if carry is None else without_carry(program))
    held = held_samples(program) if finite is None and carry is None else None
    finite = finite if held is None else _lengths(program, held)
    if finite is None:
        return "results may depend on rows however long ago"
    past, future = max(halo.past for halo in finite), max(halo.future for halo in finite)
    return Halo(past, future, *_grid(program), carry, output.time.unit, held)


def _lengths(program: ir.Program, held: Held | None = None) -> list[Finite] | None:
    """Return how far results reach into each input; None if the length of time is not known."""
    reaches = list(boundaries(program, frozenset() if held is None else held.objects).values())
    finite = [reach for reach in reaches if isinstance(reach, Finite)]
    return finite if len(finite) == len(reaches) else None


def _grid(program: ir.Program) -> tuple[int, int]:
    """Return the step and an end of a program's windows; (1, 0) if it combines samples in any other way."""
    match [obj.body for obj in program.objects if _gathers(obj.body)]:
        case [ir.Reduce(domain=TimeWindow(size=size, every=every, offset=offset))]:
            return every, (offset + size) % every
        case _:
            return 1, 0


def _first_windows(program: ir.Program) -> tuple[str, ...] | str:
    """Return the windows that input rows reach first, if all of them are computed in panes, else the reason."""
    if any(isinstance(obj.body, Table) for obj in program.objects):
        return "a table is joined, which would have to travel with every state"
    first = [obj for obj in program.objects if _gathers(obj.body) and not _behind(obj, program)]
    for this in first:
        if not isinstance(this.body, ir.Reduce) or not in_panes(this.body, program):
            return f"~{this.name} needs the rows themselves"
    if program.output in _plain(program):
        return "some rows of the result are in no window"
    return tuple(this.name for this in first) or "there are no windows"


def _gives_table(body: ir.Body) -> bool:
    return isinstance(body, Join) and isinstance(body.pairing, Lookup) and not looks_up(body)


def _plain(program: ir.Program) -> frozenset[str]:
    """Return the objects that some rows reach without passing a window."""
    found: set[str] = set()
    for obj in program.objects:
        sources: Sequence[str] = ir.sources_of(obj.body)
        if isinstance(obj.body, ir.Input) or (not _gathers(obj.body) and found.intersection(sources)):
            found.add(obj.name)
    return frozenset(found)


def _behind(this: ir.Object, program: ir.Program) -> bool:
    """Return whether every row of an object has passed a window before."""
    return not _plain(program).intersection(ir.sources_of(this.body))
