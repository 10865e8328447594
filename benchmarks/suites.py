"""Run `python -m benchmarks ysb`: the main case, then whatever else was asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from benchmarks.contenders import (
    Field,
    cpp_contender,
    penstock_contender,
    wanted_event,
    ysb_contenders,
)
from benchmarks.figures import Case, Figure, fastest, named, ratio, rivals, speed_figures
from benchmarks.measure import Contender, Outcome, compare
from benchmarks.peers import peer_contenders
from benchmarks.workloads import EventType, Skew, YsbKeyed, ysb_keyed

SWEEP_KEYS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
SWEEP_PEERS = ("polars", "duckdb")
QUICK_LAPS = 15  # neighbours leave memory alone for moments; the best of few laps tells who met one

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """What to run, and how often."""

    spec: YsbKeyed
    repeat: int = 5
    strings: bool = False
    hot: bool = False
    sweep: tuple[int, ...] = ()


def ysb_cases(options: Options, field: Field, progress: Progress) -> list[Case]:
    """Run the cases asked for, one table at a time so that memory holds one or two."""
    cases = [main_case(options, field, progress)]
    if options.strings:
        cases.append(string_case(options, field, progress))
    if options.hot:
        cases.append(hot_case(options, field, progress))
    return cases + [sweep_case(options, field, keys, progress) for keys in options.sweep]


def main_case(options: Options, field: Field, progress: Progress) -> Case:
    """Everyone over the table as specified."""
    contenders = contenders_for(options.spec, field, progress)
    outcomes = compare(contenders, options.repeat, progress, laps=QUICK_LAPS)
    return case("ysb-keyed", options.spec, outcomes, speed_figures(outcomes, field.threads, rival_target=2.5))


def sweep_case(options: Options, field: Field, keys: int, progress: Progress) -> Case:
    """The main case at another number of keys, against the fast peers only."""
    spec = replace(options.spec, keys=keys)
    only = replace(field, peers=tuple(name for name in field.peers if name in SWEEP_PEERS))
    outcomes = compare(contenders_for(spec, only, progress), options.repeat, progress)
    made = case(f"keys {keys:,}", spec, outcomes, speed_figures(outcomes, field.threads, rival_target=1.5))
    return replace(made, sweep="keys", point=keys)


def contenders_for(spec: YsbKeyed, field: Field, progress: Progress) -> list[Contender]:
    """Generate the table and line up the contenders."""
    progress(f"generate {spec.rows:,} rows, {spec.keys:,} keys")
    return ysb_contenders(ysb_keyed(spec), spec, field)


def string_case(options: Options, field: Field, progress: Progress) -> Case:
    """Integer, plain string and dictionary event types of the same rows, side by side."""
    most = max(field.threads)
    contenders: list[Contender] = []
    for kind in EventType:
        spec = replace(options.spec, event_type=kind)
        progress(f"generate event_type as {kind}")
        table, wanted = ysb_keyed(spec), wanted_event(kind)
        contenders.append(penstock_contender(table, wanted, most, f"Penstock {kind}"))
        if kind is EventType.STRING:
            contenders += peer_contenders(table, most, wanted, list(field.peers))
    outcomes = compare(contenders, options.repeat, progress, laps=QUICK_LAPS)
    return case("ysb-keyed, string event_type", options.spec, outcomes, string_figures(outcomes))


def string_figures(outcomes: Sequence[Outcome]) -> tuple[Figure, ...]:
    """What strings cost against integers, and Penstock on strings against the peers on strings."""
    plain = named(outcomes, "Penstock int")
    string, dictionary = named(outcomes, "Penstock string"), named(outcomes, "Penstock dictionary")
    return (
        Figure("time with string / int event_type", ratio(string, plain), 2.0, at_least=False),
        Figure("time with dictionary / int event_type", ratio(dictionary, plain), 2.0, at_least=False),
        Figure("Penstock string / best of Polars and DuckDB", ratio(fastest(rivals(outcomes)), string)),
    )


def hot_case(options: Options, field: Field, progress: Progress) -> Case:
    """Uniform, Zipf and one hot key, side by side: skew must cost nothing."""
    most = max(field.threads)
    contenders: list[Contender] = []
    for skew in Skew:
        spec = replace(options.spec, skew=skew)
        progress(f"generate {skew} keys")
        table = ysb_keyed(spec)
        contenders += [replace(c, question=skew) for c in skew_contenders(table, spec, field, most)]
    outcomes = compare(contenders, options.repeat, progress, laps=QUICK_LAPS)
    return case("ysb-keyed, skewed keys", options.spec, outcomes, hot_figures(outcomes))


def skew_contenders(table: pa.Table, spec: YsbKeyed, field: Field, threads: int) -> list[Contender]:
    """The reference and Penstock on one skew; the peers only on the hot key."""
    reference = replace(cpp_contender(field.reference, table, spec.keys, threads), name=f"C++ {spec.skew}")
    ours = penstock_contender(table, wanted_event(spec.event_type), threads, f"Penstock {spec.skew}")
    peers = list(field.peers) if spec.skew is Skew.HOT else []
    return [reference, ours, *peer_contenders(table, threads, wanted_event(spec.event_type), peers)]


def hot_figures(outcomes: Sequence[Outcome]) -> tuple[Figure, ...]:
    """What a hot key and Zipf keys cost against uniform ones."""
    uniform = named(outcomes, "Penstock uniform")
    hot, zipf = named(outcomes, "Penstock hot"), named(outcomes, "Penstock zipf")
    return (
        Figure("time with one hot key / uniform keys", ratio(hot, uniform), 1.0, at_least=False),
        Figure("time with Zipf keys / uniform keys", ratio(zipf, uniform)),
        Figure("Penstock hot / C++ hot", ratio(named(outcomes, "C++ hot"), hot)),
        Figure("Penstock hot / best of Polars and DuckDB", ratio(fastest(rivals(outcomes)), hot)),
    )


def case(name: str, spec: YsbKeyed, outcomes: Sequence[Outcome], figures: tuple[Figure, ...]) -> Case:
    """Put a case together."""
    return Case(name, spec.rows, spec.keys, tuple(outcomes), figures)
