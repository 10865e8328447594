"""Run a benchmark suite and report it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks.contenders import ALL_PEERS, Field, open_field
from benchmarks.figures import Case, Figure
from benchmarks.iawj.command import run_joins
from benchmarks.joins import joins_cases
from benchmarks.measure import MINIMUM_REPEAT
from benchmarks.memory import memory_figures
from benchmarks.on_spark.suite import SparkOptions, spark_bench
from benchmarks.options import SuiteOptions
from benchmarks.peers import limit_polars_threads
from benchmarks.reference import Reference
from benchmarks.reference.swag import load_swag
from benchmarks.reference.tilt import load_tilt
from benchmarks.report import figure_table, print_case, save_json, to_json
from benchmarks.scale.command import run_scale
from benchmarks.startup import startup_figures
from benchmarks.streaming.suite import StreamingOptions, streaming_cases
from benchmarks.suites import SWEEP_KEYS, Options, Progress, ysb_cases
from benchmarks.swag.suite import flat_figures, swag_cases
from benchmarks.sweep_report import print_cases, summary
from benchmarks.tilt.suite import batch_figure, tilt_cases
from benchmarks.windows import WindowOptions, window_cases
from benchmarks.workloads import YsbKeyed
from penstock.calibration.machine import facts
from penstock.cli.guard import CommandError

QUICK_PART = 10
QUIET_LOAD = 0.5
WINDOW_REPEAT = 3
STREAM_REPEAT = 2
SCALE_ROWS = 8
"""The fewest rows that the sizes of the study of scale can be cut from."""


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """The flags of a suite, as given."""

    suite: str
    rows: int
    keys: int
    threads: str
    repeat: int
    sweep: bool
    strings: bool
    hot: bool
    peers: str
    json: Path | None
    plot: Path | None
    quick: bool
    windows: bool = False
    only: str = ""


Run = tuple[list[Case], Sequence[Figure]]
"""The cases of a run, and the figures that belong to none of them."""


def run_bench(request: BenchRequest) -> None:
    """Run the suite, print the results, and save them if requested."""
    if request.suite == "scale":
        rows = max(request.rows // QUICK_PART, SCALE_ROWS) if request.quick else request.rows
        run_scale(rows, request.repeat, request.json)
        return
    console = Console()
    threads = parse_threads(request.threads)
    if request.suite == "iawj":
        repeat = repeat_of(request, WINDOW_REPEAT)
        run_joins(threads[0], repeat, request.quick, request.json, request.plot)
        return
    limit_polars_threads(max(threads))
    if request.suite == "spark":
        run_spark(console, request, max(threads))
        return
    if request.suite == "streaming":
        run_streaming(console, request, max(threads))
        return
    with console.status("compiling the C++ reference") as status:
        field = open_field(threads, parse_peers(request.peers))
        machine = facts() | bandwidths(field)
        print_machine(console, machine)
        suite = suite_of(request)
        cases, alone = suite.run(request, field, status.update)
    suite.show(console, cases)
    if alone:
        console.print(figure_table(alone))
    save(request, machine, cases, alone)


@dataclass(frozen=True, slots=True)
class Suite:
    """A benchmark's runner and the printer of its cases."""

    run: Callable[[BenchRequest, Field, Progress], Run]
    show: Callable[[Console, Sequence[Case]], None]


def suite_of(request: BenchRequest) -> Suite:
    """Choose the suite to run."""
    if request.suite == "joins":
        return Suite(run_pairs, print_each)
    if request.suite == "swag":
        return Suite(run_swag, print_cases)
    if request.suite == "tilt":
        return Suite(run_tilt, print_cases)
    return Suite(run_windows, print_cases) if request.windows else Suite(run_ysb, print_each)


def print_each(console: Console, cases: Sequence[Case]) -> None:
    """Print every case separately."""
    for case in cases:
        print_case(console, case)


def run_ysb(request: BenchRequest, field: Field, progress: Progress) -> Run:
    """Run the YSB query, then measure startup."""
    cases = ysb_cases(options_of(request), field, progress)
    progress("starting fresh interpreters")
    return cases, startup_figures() + memory_figures()


def run_windows(request: BenchRequest, field: Field, progress: Progress) -> Run:
    """Run the YSB query over the matrix of windows, aggregates and keys."""
    spec, repeat = YsbKeyed(rows_of(request), request.keys), repeat_of(request, WINDOW_REPEAT)
    return window_cases(WindowOptions(spec, repeat, max(field.threads), field.peers), progress), ()


def run_swag(request: BenchRequest, field: Field, progress: Progress) -> Run:
    """Run the sliding windows, and collect every target."""
    options = asked(request, field, WINDOW_REPEAT)
    cases = swag_cases(options, load_swag(), progress)
    return cases, (*summary(cases), *flat_figures(cases))


def run_spark(console: Console, request: BenchRequest, cores: int) -> None:
    """Run the queries on Spark, without the C++ reference."""
    repeat = repeat_of(request, WINDOW_REPEAT)
    options = SparkOptions(rows_of(request), request.keys, repeat, cores, request.only)
    if not options.questions:
        raise CommandError(f"--only {request.only!r}: no question on Spark has that in its name")
    machine = facts() | {"compiler": "no C++ takes part"}
    print_machine(console, machine)
    cases: list[Case] = []
    alone: list[Figure] = []
    with console.status("starting") as status:
        for made in spark_bench(options, status.update):
            if isinstance(made, Case):
                cases.append(made)
                print_case(console, made)
            else:
                alone.append(made)
    console.print(figure_table(alone))
    save(request, machine, cases, alone)


def run_streaming(console: Console, request: BenchRequest, cores: int) -> None:
    """Run streams on Spark, compared with plain Spark."""
    options = StreamingOptions(rows_of(request), request.keys, min(request.repeat, STREAM_REPEAT), cores)
    machine = facts() | {"compiler": "no C++ takes part"}
    print_machine(console, machine)
    with console.status("starting") as status:
        cases, alone = streaming_cases(options, status.update)
    print_each(console, cases)
    console.print(figure_table(alone))
    save(request, machine, cases, alone)


def run_pairs(request: BenchRequest, field: Field, progress: Progress) -> Run:
    """Run the joins. Each side has a tenth of the rows of other suites."""
    options = asked(request, field, WINDOW_REPEAT)
    return joins_cases(replace(options, rows=max(options.rows // QUICK_PART, 1000)), progress), ()


def run_tilt(request: BenchRequest, field: Field, progress: Progress) -> Run:
    """Run the operators and applications over regular signals, and collect every target."""
    options = asked(request, field, request.repeat)
    cases = tilt_cases(options, load_tilt(), progress)
    return cases, (*summary(cases), batch_figure([case for case in cases if case.sweep]))


def asked(request: BenchRequest, field: Field, most: int) -> SuiteOptions:
    """Build the options of a suite from the flags; at most `most` rounds."""
    repeat = repeat_of(request, most)
    return SuiteOptions(rows_of(request), repeat, max(field.threads), tuple(field.peers), request.quick)


def rows_of(request: BenchRequest) -> int:
    """Return the requested number of rows, or a tenth of it with --quick."""
    return max(1, request.rows // QUICK_PART) if request.quick else request.rows


def repeat_of(request: BenchRequest, most: int) -> int:
    """Return the requested number of rounds, at most `most`."""
    return MINIMUM_REPEAT if request.quick else min(request.repeat, most)


def options_of(request: BenchRequest) -> Options:
    """Build the suite's options from the flags."""
    return Options(
        YsbKeyed(rows_of(request), request.keys),
        repeat=MINIMUM_REPEAT if request.quick else request.repeat,
        strings=request.strings,
        hot=request.hot,
        sweep=SWEEP_KEYS if request.sweep else (),
    )


def parse_threads(text: str) -> list[int]:
    """Parse `1,2`."""
    return parse_counts(text, "--threads", "1,2")


def parse_counts(text: str, flag: str, example: str) -> list[int]:
    """Parse positive numbers separated by commas; give them once each, in order."""
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise CommandError(f"{flag} {text!r} is not a list of numbers: write e.g. {example}") from None
    if counts[0] < 1:
        raise CommandError(f"{flag} {text!r}: each number is at least 1")
    return counts


def parse_peers(text: str) -> list[str]:
    """Parse `polars,duckdb`; an empty text means no peers."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in names if name not in ALL_PEERS]
    if unknown:
        raise CommandError(f"unknown peers {', '.join(unknown)}: choose from {', '.join(ALL_PEERS)}")
    return names


def bandwidths(field: Field) -> dict[str, object]:
    """Measure memory bandwidth with the compiled reference; empty without one."""
    if not isinstance(field.reference, Reference):
        return {"compiler": str(field.reference)}
    measured = {str(n): field.reference.read_bandwidth(n) / 1e9 for n in field.threads}
    return {"compiler": field.reference.compiler, "read_gb_per_second": measured}


def print_machine(console: Console, machine: dict[str, object]) -> None:
    """Print the machine facts that the figures depend on."""
    console.print(f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB", highlight=False)
    console.print(str(machine["compiler"]), style="dim", markup=False, highlight=False)
    match machine.get("read_gb_per_second"):
        case dict() as measured:
            parts = (f"{speed:.1f} GB/s on {n} thread(s)" for n, speed in measured.items())
            console.print("memory reads " + ", ".join(parts), highlight=False)
    warn_of_load(console, machine["load"])


def warn_of_load(console: Console, load: object) -> None:
    """Warn if other programs are running: they take cores away, mostly from runs with many threads."""
    if isinstance(load, float) and load > QUIET_LOAD:
        console.print(
            f"load average {load}: other programs are running, so figures will be low and uneven",
            style="yellow",
        )


def save(
    request: BenchRequest, machine: dict[str, object], cases: Sequence[Case], alone: Sequence[Figure]
) -> None:
    """Write the JSON and the plot, if requested."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    document = to_json(request.suite, when, machine, cases, alone)
    if request.json is not None:
        save_json(request.json, document)
    if request.plot is not None:
        from benchmarks.plot import save_plot  # noqa: PLC0415 - matplotlib may be absent

        save_plot(request.plot, document)
