"""Declare the commands. Each body imports its dependencies, so that `penstock --help` stays quick."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import penstock
from penstock.cli.guard import CommandError, GuardedGroup

# Flags of a query are unknown to Typer; they are parsed from the signature of the query function.
TAKES_FLAGS = {"allow_extra_args": True, "ignore_unknown_options": True}

app = typer.Typer(
    cls=GuardedGroup,
    no_args_is_help=True,
    add_completion=False,
    help="Compiled temporal queries over Arrow data.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


class ExplainStage(StrEnum):
    """A stage of compilation that `explain` can show."""

    PLAN = "plan"
    IR = "ir"
    PASSES = "passes"
    PHYSICAL = "physical"
    LOOP = "loop"
    LLVM = "llvm"
    ASM = "asm"
    SPARK = "spark"


PackTarget = Annotated[
    str, typer.Argument(metavar="FILE.py:NAME", help="A query, or a function that gives one.")
]


def print_version(requested: bool) -> None:
    """Print the version and exit, if requested."""
    if requested:
        typer.echo(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def main(
    debug: Annotated[
        bool, typer.Option("--debug", envvar="PENSTOCK_DEBUG", help="Show tracebacks of errors.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Compiled temporal queries over Arrow data."""


@app.command()
def demo(
    rows: Annotated[int, typer.Option(min=1, help="Rows of the click stream.")] = 3_000_000,
    threads: Annotated[int | None, typer.Option(min=1, help="Worker threads, without Spark.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random data.")] = 1,
    spark: Annotated[bool, typer.Option(help="Run on Spark, or in this process only.")] = True,
) -> None:
    """Generate a lake of clicks, and compare a sliding window over it on Spark with plain Spark."""
    if spark:
        from penstock.cli.demo import run_spark_demo  # noqa: PLC0415 - --help stays quick

        run_spark_demo(rows, seed)
    else:
        from penstock.cli.demo import run_demo  # noqa: PLC0415 - --help stays quick

        run_demo(rows, threads, seed)


@app.command(context_settings=TAKES_FLAGS)
def run(
    context: typer.Context,
    target: PackTarget,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write here: .parquet, .arrow, .csv or .json (lines)."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows to print.")] = 20,
    threads: Annotated[int | None, typer.Option(min=1, help="Worker threads.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Run as long as data comes, and show how; --output is a folder.")
    ] = False,
    spark: Annotated[
        bool, typer.Option("--spark", help="With --watch: as a stream of Spark; --output is a Delta table.")
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="With --spark: the folder of the stream's checkpoint.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="With --spark: stop when all that is there is read.")
    ] = False,
) -> None:
    """Run a query from a Python file. Other flags go to the query's function (after -- all of them: -- --help lists them)."""
    if watch and spark:
        from penstock.cli.watch import watch_on_spark  # noqa: PLC0415 - --help stays quick

        watch_on_spark(target, context.args, output, checkpoint, once)
        return
    if spark or checkpoint is not None or once:
        raise CommandError(
            "--spark, --checkpoint and --once go with --watch; --checkpoint and --once with --spark"
        )
    if watch:
        from penstock.cli.watch import watch_query  # noqa: PLC0415 - --help stays quick

        watch_query(target, context.args, output, limit, threads)
        return
    from penstock.cli.run import run_query  # noqa: PLC0415 - --help stays quick

    run_query(target, context.args, output, limit, threads)


@app.command(context_settings=TAKES_FLAGS)
def explain(
    context: typer.Context,
    target: PackTarget,
    stage: Annotated[ExplainStage | None, typer.Option(help="Show one stage of compilation only.")] = None,
) -> None:
    """Show how a query from a Python file is compiled and run."""
    from penstock.cli.run import explain_query  # noqa: PLC0415 - --help stays quick

    explain_query(target, context.args, stage)


@app.command()
def sql(
    text: Annotated[
        str, typer.Argument(metavar="QUERY", help="The query, or a file whose name ends in .sql.")
    ],
    stream: Annotated[
        list[str] | None, typer.Option(metavar="NAME=PATH", help="A stream: files, a folder or a glob.")
    ] = None,
    time: Annotated[
        list[str] | None, typer.Option(metavar="[NAME=]COLUMN", help="The column that holds a stream's time.")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option(metavar="NAME=PATH", help="A table without time.")
    ] = None,
    unit: Annotated[str | None, typer.Option(help="What integer times count in: ns, us, ms, s or d.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "--output", "-o", help="Write here: .parquet, .arrow, .csv or .json (lines)."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows to print.")] = 20,
    threads: Annotated[int | None, typer.Option(min=1, help="Worker threads.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show how the query is run instead.")] = False,
) -> None:
    r"""Run streaming SQL: penstock sql "select k, sum(v) from s \[range 10] group by k" --stream s=s.parquet --time ts."""
    from penstock.cli.sql import SqlRequest, run_sql  # noqa: PLC0415 - --help stays quick

    run_sql(SqlRequest(text, stream or [], table or [], time or [], unit, out, limit, threads, explain))


@app.command(context_settings=TAKES_FLAGS, add_help_option=False)
def bench(context: typer.Context) -> None:
    """Compare Penstock with hand-written C++, Polars, DuckDB, Spark and others: bench ysb, bench --help."""
    from penstock.cli.bench import run_benchmarks  # noqa: PLC0415 - --help stays quick

    run_benchmarks(context)


@app.command()
def doctor(
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure joins on this machine, for algorithm='auto'.")
    ] = False,
    scale: Annotated[float, typer.Option(min=0.001, help="Of a calibration: less is quicker.")] = 0.2,
    spark: Annotated[
        str | None,
        typer.Option("--spark", metavar="MASTER", help="Report on the executors of a Spark cluster."),
    ] = None,
    path: Annotated[
        list[str] | None, typer.Option(help="With --spark: a path that executors must reach.")
    ] = None,
    ship: Annotated[bool, typer.Option("--ship", help="With --spark: give them Penstock first.")] = False,
) -> None:
    """Report the capabilities of this machine and this installation, or of a cluster, and what is missing."""
    if spark is not None:
        from penstock.cli.doctor import examine_cluster  # noqa: PLC0415 - --help stays quick

        examine_cluster(spark, path or [], ship)
        return
    if path or ship:
        raise CommandError("--path and --ship go with --spark MASTER")
    if calibrate:
        from penstock.cli.doctor import run_calibration  # noqa: PLC0415 - --help stays quick

        run_calibration(scale)
        return
    from penstock.cli.doctor import examine  # noqa: PLC0415 - --help stays quick

    examine()


@app.command()
def pack(
    output: Annotated[
        Path, typer.Argument(metavar="ARCHIVE.tar.gz", help="Where to write the archive.")
    ] = Path("penstock.tar.gz"),
    python: Annotated[str | None, typer.Option(help="The executors' Python; by default this one.")] = None,
    machine: Annotated[str | None, typer.Option(help="Their processors: x86_64 or aarch64.")] = None,
    add: Annotated[list[str] | None, typer.Option(help="A further package, installed here.")] = None,
) -> None:
    """Pack Penstock and its packages for Spark's executors: --conf spark.archives=ARCHIVE.tar.gz#penstock."""
    from penstock.spark.deploy.pack import PackTarget, pack_archive  # noqa: PLC0415 - --help stays quick

    given = {name: value for name, value in (("python", python), ("machine", machine)) if value is not None}
    path = pack_archive(output, PackTarget(**given), add=add or [])
    typer.echo(f"{path}: {path.stat().st_size / 1e6:.0f} MB; --conf spark.archives={path}#penstock")


state = typer.Typer(no_args_is_help=True, help="Look into the checkpoint of a streaming query on Spark.")
app.add_typer(state, name="state")
Checkpoint = Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The folder of a stream's checkpoint.")]
Batch = Annotated[int | None, typer.Option(help="The state after this batch; by default after the last.")]


@state.command("ls")
def list_state(checkpoint: Checkpoint, batch: Batch = None) -> None:
    """List the shards: sizes, rows of each table, row counts and the latest time of each split."""
    from penstock.cli.run import list_shards  # noqa: PLC0415 - --help stays quick

    list_shards(checkpoint, batch)


@state.command("show")
def show_state(
    checkpoint: Checkpoint,
    table: Annotated[str | None, typer.Option(help="One table, by a name that ls lists.")] = None,
    shard: Annotated[int | None, typer.Option(help="One shard, by its label.")] = None,
    batch: Batch = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows to print of each table.")] = 20,
) -> None:
    """Print the rows of the state: open panes, waiting rows, sessions."""
    from penstock.cli.run import show_tables  # noqa: PLC0415 - --help stays quick

    show_tables(checkpoint, batch, table, shard, limit)
