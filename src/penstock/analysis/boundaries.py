"""Compute how much of each input the output depends on around any instant (TiLT, section 5.1).

    ~w2[t] @ size 20s over ~w1, ~w1[t] @ size 10s over ~in0   →  {"in0": Finite(past = 30s - 2 ticks)}

The result is one of three:

* `Finite(past, future)`: the output in [a, b) needs the input in [a - past, b + future) only, so time can
  be cut anywhere, with a halo;
* `CarryIn()`: it also needs a summary of all earlier input, one entry per key;
* `Sequential()`: it may need the whole input.

This analysis does not change the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.expr.nodes import Column
from penstock.ir.nodes import (
    Apply,
    Asof,
    Attach,
    Distinct,
    Input,
    Join,
    Lookback,
    Object,
    Program,
    Reduce,
    RollingJoin,
    Samples,
    Signals,
    Top,
    sources_of,
)
from penstock.ir.signals import nodes as temporal
from penstock.ir.signals.scope import NO_END, is_lenient
from penstock.types.time import NANOSECONDS
from penstock.types.windows import WINDOW_END, Calendar, CarriedWindow, InWindow, Lookup, TimeWindow, Within


@dataclass(frozen=True, slots=True)
class Finite:
    """The number of ticks needed before and after."""

    past: int = 0
    future: int = 0


@dataclass(frozen=True, slots=True)
class CarryIn:
    pass


@dataclass(frozen=True, slots=True)
class Sequential:
    pass


Reach = Finite | CarryIn | Sequential
Boundaries = dict[str, Reach]


def boundaries(program: Program, held: frozenset[str] = frozenset()) -> Boundaries:
    """Return the reach of the program's output into each of its inputs, by the input object's name.

    Of the objects `held`, the sample that holds at a bound of time is known, and when the next one comes.
    """
    return lineage(program, held)[program.output]


def lineage(program: Program, held: frozenset[str] = frozenset()) -> dict[str, Boundaries]:
    """Return the reach of every object into each input it depends on."""
    found: dict[str, Boundaries] = {}
    for obj in program.objects:
        if isinstance(obj.body, Input):
            found[obj.name] = {obj.name: Finite()}
            continue
        reached: Boundaries = {}
        for source in sources_of(obj.body):
            step = _step(obj, program[source], program, obj.name in held)
            for name, reach in found[source].items():
                longer = _chained(step, reach)
                reached[name] = _joined(reached[name], longer) if name in reached else longer
        found[obj.name] = reached
    return found


def _step(this: Object, source: Object, program: Program, held: bool) -> Reach:
    """Return the reach of an object into one of its sources."""
    match this.body:
        case Samples(fields=fields):
            clock = next((field.expr for field in fields if field.name == this.time.column), None)
            return Finite() if clock in {None, Column(source.time.column)} else Sequential()
        case Reduce(domain=TimeWindow(size=size)) | Apply(domain=TimeWindow(size=size)):
            return Finite(size - 1)  # a result's time is its window's last tick
        case Attach(domain=TimeWindow(size=size)):
            return Finite(size - 1, size - 1)
        case Reduce(domain=Calendar() as domain) | Apply(domain=Calendar() as domain):
            return Finite(_longest(domain))
        case Attach(domain=Calendar() as domain):
            return Finite(_longest(domain), _longest(domain))
        case Lookback(spans=spans) if all(span.size is not None for span in spans):
            return Finite(max((span.size or 0) + span.delay for span in spans))
        case Asof() if held:
            return Finite()
        case Join() | Asof() | RollingJoin() as body:
            return _of_join(body)
        case Reduce(domain=CarriedWindow()):
            return _within_window(source, program, results=True)
        case Attach(domain=CarriedWindow()) | Top():
            return _within_window(source, program, results=False)
        case Signals() as body:
            return _of_intervals(body, source.name, held)
        case Distinct(keep="first"):
            return CarryIn()
        case Reduce() | Attach() | Apply() | Lookback():
            return Sequential()
        case Distinct():
            return Sequential()  # whether a sample is the last depends on all later samples
        case _:
            return Finite()


def _longest(domain: Calendar) -> int:
    """Return more ticks than a window of local time can have: months of 31 days, and two hours of changing clocks a day or more."""
    day = NANOSECONDS["d"] // NANOSECONDS[domain.unit]
    return (31 * domain.size.months + 2) * day + domain.size.ticks


def _of_asof(tolerance: int | None, direction: str) -> Reach:
    """Return the reach of an as-of join."""
    if tolerance is None:
        return CarryIn() if direction == "backward" else Sequential()
    return Finite(tolerance if direction != "forward" else 0, tolerance if direction != "backward" else 0)


def _of_join(body: Join | Asof | RollingJoin) -> Reach:
    """Return the reach of a join into either side; a result's time is that of its later sample."""
    match body:
        case Asof(tolerance=tolerance, direction=direction):
            return _of_asof(tolerance, direction)
        case RollingJoin(within=Within(lo=lo, hi=hi)):
            return Finite(max(-lo, 0), max(hi, 0))
        case Join(pairing=Within(lo=lo, hi=hi), how=how):
            far = max(-lo, hi, 0)
            return Finite(far, 0 if how == "inner" else far)
        case Join(pairing=InWindow(left=TimeWindow(size=one), right=TimeWindow(size=other))):
            return Finite(max(one, other) - 1, max(one, other) - 1)
        case Join(pairing=Lookup()):
            return Finite()
        case _:
            return Sequential()


# --- signals --------------------------------------------------------------------------------------------


def _of_intervals(body: Signals, source: str, held: bool) -> Reach:
    """Return the reach of a signal's intervals into a source.

    An interval may span a cut, so open intervals are carried over it. Those of a signal whose values have a finite reach
    end at the next mark, at most that reach later, if each mark begins another: to find their beginnings and ends, twice
    the reach is read.
    """
    own = signal_reach(body.program, body.sources, source, held)
    reaches = [signal_reach(body.program, body.sources, name, held) for name in body.sources]
    finite = [reach for reach in reaches if isinstance(reach, Finite)]
    if not isinstance(own, Finite) or len(finite) < len(reaches) or not (held or _ends_soon(body)):
        return _worse(CarryIn(), own)
    longest = 2 * max(reach.past + reach.future + 1 for reach in finite)
    return Finite(own.past + longest, own.future + longest)


def _ends_soon(body: Signals) -> bool:
    """Return whether no interval outlives the samples it depends on, or the next mark."""
    if not body.program.pieces:
        return False
    schemas = {obj.name: obj.schema for obj in body.program.objects}
    return all(
        isinstance(obj.body, temporal.Sampled)
        or (isinstance(obj.body, temporal.Expression) and not is_lenient(obj.body, schemas))
        for obj in body.program.objects
    )


def signal_reach(program: temporal.Program, sources: Sequence[str], source: str, held: bool = False) -> Reach:
    """Return the reach of a signal's value at an instant into the samples of one of its sources."""
    taken = {
        obj.name
        for obj in program.objects
        if isinstance(obj.body, temporal.Sampled) and sources[int(obj.body.input)] == source
    }
    reached = signal_lineage(program, held)[program.output]
    reaches = [reach for name, reach in reached.items() if name in taken]
    whole = reaches[0]
    for reache in reaches[1:]:
        whole = _joined(whole, reache)
    return whole


def signal_lineage(program: temporal.Program, held: bool = False) -> dict[str, Boundaries]:
    """Return the reach of every temporal object into the samples it depends on, by the name of the Sampled object.

    With `held`, the samples that hold at a bound are known beside those in reach, and the next ones.
    """
    found: dict[str, Boundaries] = {}
    for obj in program.objects:
        reached: Boundaries = {}
        for source, step in _signal_reads(obj, program, held):
            below = {source: Finite()} if _is_sampled(source, program) else found[source]
            for name, reach in below.items():
                longer = _chained(step, reach)
                reached[name] = _joined(reached[name], longer) if name in reached else longer
        found[obj.name] = reached or {obj.name: _hold(obj.body, held)}
    return found


def _is_sampled(name: str, program: temporal.Program) -> bool:
    return isinstance(program[name].body, temporal.Sampled)


def _signal_reads(this: temporal.Object, program: temporal.Program, held: bool) -> list[tuple[str, Reach]]:
    """List the objects that an object reads, and how far around an instant."""
    match this.body:
        case temporal.Expression(accesses=accesses, reductions=reductions):
            values = [(access.source, _access(access, program, held)) for access in accesses]
            return values + [(reduction.source, _over(reduction)) for reduction in reductions]
        case temporal.Chop(source=source, marks=None) if held:
            return [(source, Finite())]
        case temporal.Resample(source=source, max_gap=None) if held:
            return [(source, Finite())]
        case temporal.Chop(source=source, marks=marks):
            cuts = [] if marks is None else [(marks.source, CarryIn())]
            return [(source, CarryIn()), *cuts]
        case temporal.Resample(source=source, max_gap=int(gap)):
            return [(source, Finite(gap, gap))]
        case temporal.SampleAndHold(source=source, clock=clock):
            return [(source, CarryIn()), (clock, CarryIn())]
        case body:
            return [(source, Sequential()) for source in temporal.sources_of(body)]


def _access(access: temporal.At, program: temporal.Program, held: bool) -> Reach:
    moved = Finite(max(access.shift, 0), max(-access.shift, 0))
    return _chained(moved, _hold(program[access.source].body, held))


def _hold(body: temporal.Body, held: bool) -> Reach:
    """Return how long ago the sample that holds at an instant can have begun."""
    if held or not isinstance(body, temporal.Sampled):
        return Finite()
    lasting = body.hold.lasting
    return CarryIn() if lasting is None else Finite(lasting - 1)


def _over(over: temporal.WindowReduction) -> Reach:
    past, future = max(over.shift, 0), max(-over.shift, 0)
    match over.span:
        case temporal.Rolling(size=size) if size < NO_END:
            return Finite(size - 1 + past, future)
        case temporal.Window(size=size, every=every):
            return Finite(size + every - 1 + past, future)
        case temporal.Per(size=size):
            return Finite(size - 1 + past, size - 1 + future)
        case temporal.Last(rows=1):
            return CarryIn()
        case _:
            return Sequential()


def _within_window(source: Object, program: Program, *, results: bool) -> Reach:
    """Return the reach among samples that carry the same window."""
    if source.time.column == WINDOW_END:
        return Finite()  # all samples of the window have the same time
    size = _carried_size(source, program)
    if size is None:
        return Sequential()
    return Finite(size - 1, 0 if results else size - 1)


def _carried_size(this: Object, program: Program) -> int | None:
    """Return the size of the windows that samples carry; None if the windows are input columns."""
    match this.body:
        case Reduce(domain=TimeWindow(size=size)) | Attach(domain=TimeWindow(size=size)):
            return size
        case Join(pairing=InWindow(left=TimeWindow(size=one), right=TimeWindow(size=other))):
            return max(one, other)
        case body:
            sizes = [_carried_size(program[name], program) for name in sources_of(body)]
            known = [size for size in sizes if size is not None]
            return max(known) if known and len(known) == len(sizes) else None


def _chained(first: Reach, second: Reach) -> Reach:
    """Return the reach through two steps in sequence."""
    match first, second:
        case Finite(past=a, future=b), Finite(past=c, future=d):
            return Finite(a + c, b + d)
        case _:
            return _worse(first, second)


def _joined(first: Reach, second: Reach) -> Reach:
    """Return the reach of an object that depends on both."""
    match first, second:
        case Finite(past=a, future=b), Finite(past=c, future=d):
            return Finite(max(a, c), max(b, d))
        case _:
            return _worse(first, second)


def _worse(first: Reach, second: Reach) -> Reach:
    severity = (Finite, CarryIn, Sequential)
    return max(first, second, key=lambda reach: severity.index(type(reach)))
