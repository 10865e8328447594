"""Put kernels, C++ and peers side by side, application by application, and say what must be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import numpy as np
import pyarrow as pa

import penstock as pk
from benchmarks.contenders import CPP_GROUP, PENSTOCK_GROUP
from benchmarks.figures import Case, Figure, named, ratio
from benchmarks.measure import Contender, Outcome, compare
from benchmarks.options import SuiteOptions
from benchmarks.peers import PEER_GROUP, failing
from benchmarks.reference import NoCompilerError, Reference, load_reference
from benchmarks.reference.tilt import TYPES, TiltReference
from benchmarks.tilt.applications import APPLICATIONS, Application
from benchmarks.tilt.kernel import DenseRun, as_table, dense_run, floats
from benchmarks.tilt.keyed import KEYS, ROWS_PART, keyed_cases
from benchmarks.tilt.memory import memory_cases, traffic_contenders, traffic_figures
from benchmarks.tilt.peers import PEERS, Maker
from benchmarks.tilt.unfused import unfused_run
from penstock.calibration.machine import FAST_MEMORY, best_seconds

KERNEL, UNFUSED, CPP, COLLECT, RUN = "kernel", "operator by operator", "C++", "collect()", "run()"
COLLECT_PART = 10
"""`collect()` makes a table of intervals, most of them one sample long: it is asked about a part of the rows."""
BATCHES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
MOST_BATCHES = 2_000
COMPILE_MS = 150.0

Progress = Callable[[str], None]


def tilt_cases(
    options: SuiteOptions, reference: TiltReference | NoCompilerError, progress: Progress
) -> list[Case]:
    """Memory alone, every application, some of them by key, then batches of every size."""
    # Whole patterns and windows: every contender then answers the same.
    rows = max(options.rows // 10_000, 1) * 10_000
    cases = [
        application_case(application, rows, options, reference, progress) for application in APPLICATIONS
    ]
    by_key = keyed_cases(max(rows // ROWS_PART // KEYS, 1) * KEYS, options.repeat, options.peers, progress)
    alone = memory_cases(rows, options.repeat, options.threads, reference, progress)
    return [*alone, *cases, *by_key, *batch_cases(rows, options, progress)]


def application_case(
    asked: Application,
    rows: int,
    options: SuiteOptions,
    reference: TiltReference | NoCompilerError,
    progress: Progress,
) -> Case:
    """Everyone on one application."""
    progress(f"{asked.name}: generate")
    tables = asked.tables(rows)
    run, many = dense_run(asked.signal(tables), tables), options.threads
    contenders = [
        kernel_contender(KERNEL, run, 1),
        kernel_contender(f"{KERNEL}, {many} threads", run.on(many), many),
        *([] if asked.sequential else traffic_contenders(run, many, reference)),
        *unfused_contenders(asked, tables),
        *cpp_contenders(asked, tables, reference),
        *peer_contenders(asked, tables, options),
        collect_contender(asked, tables, options.threads),
    ]
    outcomes = tuple(compare(contenders, options.repeat, lambda text: progress(f"{asked.name}: {text}")))
    figures = tuple(application_figures(asked, rows, outcomes, options, run))
    return Case(asked.name, rows, 1, outcomes, figures)


# --- contenders ---------------------------------------------------------------------------------------------


def kernel_contender(name: str, run: DenseRun, threads: int) -> Contender:
    """Penstock's kernel into recycled memory."""
    return Contender(name, run, as_table, threads, PENSTOCK_GROUP)


def unfused_contenders(asked: Application, tables: Sequence[pa.Table]) -> Iterator[Contender]:
    """The same operators one after the other, through memory."""
    run = unfused_run(asked.signal(tables), tables)
    if run is not None:
        yield Contender(UNFUSED, run, as_table, 1, PENSTOCK_GROUP)


def cpp_contenders(
    asked: Application, tables: Sequence[pa.Table], reference: TiltReference | NoCompilerError
) -> Iterator[Contender]:
    """The loop written by hand, where there is one."""
    if asked.reference is None:
        return
    if isinstance(reference, NoCompilerError):
        yield Contender(CPP, failing(reference), group=CPP_GROUP)
        return
    data = tables[0].column(0).to_numpy()
    size = (len(data) - 1) * 4 // 5 + 1 if asked.reference == "resample" else len(data)
    out = np.empty(size, TYPES[asked.reference])
    loop = reference.loop(asked.reference, data, out)
    yield Contender(CPP, loop, lambda _: floats(out), group=CPP_GROUP)


def peer_contenders(
    asked: Application, tables: Sequence[pa.Table], options: SuiteOptions
) -> Iterator[Contender]:
    """Other libraries, where they can be asked."""
    for name, make, _ in PEERS.get(asked.name, ()):
        if name.lower() in (*options.peers, "numpy", "scipy"):
            yield peer_contender(name, make, tables, options.threads if name == "Polars" else 1)


def peer_contender(name: str, make: Maker, tables: Sequence[pa.Table], threads: int) -> Contender:
    """A peer over its own form of the tables; one that is absent says so."""
    try:
        run = make(tables)
    except ImportError as error:
        return Contender(name, failing(error), threads=threads, group=PEER_GROUP)
    return Contender(name, run, floats, threads, PEER_GROUP)


def collect_contender(asked: Application, tables: Sequence[pa.Table], threads: int) -> Contender:
    """The whole query: intervals, in new memory. What it gives is tested elsewhere."""
    part = [table.slice(0, max(1, table.num_rows // COLLECT_PART)) for table in tables]
    signal, engine = asked.signal(part), pk.Engine(threads=threads)

    def counted(answer: pa.Table) -> pa.Table:
        return pa.table({"rows": [answer.num_rows]})

    return Contender(
        COLLECT,
        lambda: signal.collect(engine=engine),
        counted,
        threads,
        PENSTOCK_GROUP,
        COLLECT,
        part[0].num_rows,
    )


# --- figures ------------------------------------------------------------------------------------------------


def application_figures(
    asked: Application, rows: int, outcomes: Sequence[Outcome], options: SuiteOptions, run: DenseRun
) -> Iterator[Figure]:
    """Speed against the bar, C++, peers, two threads, no fusion; and how long compiling took."""
    ours, reads = named(outcomes, KERNEL), read_speed()
    speed = rows / ours / 1e6 * (FAST_MEMORY / reads if reads else 1.0) if ours else None
    yield Figure(f"{asked.name}: kernel at {FAST_MEMORY / 1e9:g} GB/s", speed, asked.bar, unit="M/s")
    if asked.reference is not None:
        yield Figure(f"{asked.name}: kernel / C++", ratio(named(outcomes, CPP), ours), 0.9)
    both = named(outcomes, f"{KERNEL}, {options.threads} threads")
    wanted = None if asked.sequential else 1.7
    yield Figure(f"{asked.name}: {options.threads} threads / 1", ratio(ours, both), wanted)
    if not asked.sequential:
        yield from traffic_figures(asked.name, options.threads, outcomes, both)
    bar = 2.0 if asked.name == "trend" else None
    if any(outcome.name == UNFUSED for outcome in outcomes):
        yield Figure(f"{asked.name}: fused / unfused", ratio(named(outcomes, UNFUSED), ours), bar)
    for name, _, least in PEERS.get(asked.name, ()):
        threads = both if name == "Polars" else ours
        yield Figure(f"{asked.name}: kernel / {name}", ratio(named(outcomes, name), threads), least)
    yield Figure(f"{asked.name}: compile", run.compiler.seconds * 1e3, COMPILE_MS, at_least=False, unit="ms")


def read_speed() -> float | None:
    """How many bytes a second one thread reads, now: bars are for a core that reads `FAST_MEMORY`."""
    reference = _reader()
    return None if reference is None else reference.read_bandwidth(1)


@cache
def _reader() -> Reference | None:
    try:
        return load_reference()
    except NoCompilerError:
        return None


def batch_cases(rows: int, options: SuiteOptions, progress: Progress) -> list[Case]:
    """Trend by `run`, as a user gives it batches: a batch costs a push, unless small ones are gathered."""
    asked = next(application for application in APPLICATIONS if application.name == "trend")
    tables = asked.tables(rows)
    signal = asked.signal(tables)
    cases = []
    for size in (candidate for candidate in BATCHES if candidate <= rows):
        progress(f"batches of {size:,}")
        few = min(rows, size * MOST_BATCHES)
        batches = tables[0].slice(0, few).to_batches(max_chunksize=size)
        seconds = best_seconds(partial(whole_run, signal, batches), options.repeat)
        agrees = whole_run(signal, batches).equals(signal.collect(tables[0].slice(0, few)))
        outcome = Outcome(RUN, PENSTOCK_GROUP, 1, seconds=[seconds], agrees=agrees)
        cases.append(Case(f"{size:,}", few, 1, (outcome,), (), "trend, by batch", size))
    return cases


def whole_run(signal: pk.Signal, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """All intervals, batch by batch."""
    return pa.Table.from_batches(signal.run(batches, engine=pk.Engine(threads=1)), signal.schema)


def batch_figure(cases: Sequence[Case]) -> Figure:
    """Speed in batches of 1,000 against the fastest size."""
    speeds = {case.point: case.rows / time for case in cases if (time := named(case.outcomes, RUN))}
    peak = max(speeds.values(), default=None)
    value = speeds[1_000] / peak if peak and 1_000 in speeds else None
    return Figure("trend: batches of 1,000 / best", value, 0.3)
