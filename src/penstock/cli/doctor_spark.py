"""Report on the executors of a Spark cluster, in one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

import penstock as pk
from penstock.calibration import machine
from penstock.cli.guard import CommandError
from penstock.spark.deploy.preflight import Executor, survey
from penstock.spark.deploy.survey import EXECUTOR_PACKAGES

_VECTORS = ("avx512f", "avx2", "avx", "sve", "asimd")
_LATE = 1.0  # seconds; processing times and idle splits are measured by clocks


def examine_cluster(master: str, paths: Sequence[str], ship: bool) -> None:
    """Print a table with a column per executor; exit with 1 if queries cannot run on one of them."""
    console = Console()
    spark = _session(master)
    try:
        if ship:
            console.print(f"shipped {pk.ship(spark).name}")
        found = survey(spark, paths)
    finally:
        spark.stop()
    console.print(table(found))
    for line in problems(found):
        console.print(line, style="bold red", markup=False, soft_wrap=True)
    if any(executor.obstacle(streaming=True) for executor in found):
        raise typer.Exit(1)


def _session(master: str) -> Any:
    try:
        return pk.spark_session(master, name="penstock doctor")
    except pk.PenstockError:
        raise
    except Exception as error:  # Java fails in many ways
        raise CommandError(
            f"no session on {master!r} ({type(error).__name__}): check the address, the cluster's secret "
            "(spark.authenticate.secret in spark-defaults.conf), and that Java 17 or newer is there"
        ) from error


def table(executors: Sequence[Executor]) -> Table:
    """Lay out the reports, one executor a column."""
    shown = Table("", *(executor.host for executor in executors))
    for name, text in rows(executors):
        shown.add_row(name, *(text(executor) for executor in executors))
    return shown


def rows(executors: Sequence[Executor]) -> Iterator[tuple[str, Callable[[Executor], str]]]:
    """Yield the names of the rows, with what each says of an executor."""
    yield "python", lambda executor: f"{executor.python} on {executor.system} {executor.machine}"
    yield "processor", lambda executor: f"{executor.cores} cores, {vectors(executor)}"
    yield "memory", lambda executor: f"{executor.memory / 1e9:.1f} GB"
    yield "clock", lambda executor: "as here" if abs(executor.late) < _LATE else f"{executor.late:+.1f} s"
    yield "penstock", lambda executor: executor.penstock or "missing"
    for name in EXECUTOR_PACKAGES:
        yield name, lambda executor, name=name: executor.versions[name] or "-"  # type: ignore[misc]
    for path in dict.fromkeys(path for executor in executors for path in executor.paths):
        yield path, lambda executor, path=path: executor.paths[path]  # type: ignore[misc]


def vectors(executor: Executor) -> str:
    """Name the widest vectors of a processor, which decide whether it runs the driver's kernels or compiles its own."""
    widest = next((name for name in _VECTORS if name in executor.features), "no vectors")
    here = frozenset(machine.cpu_features())
    same = here == executor.features & frozenset(machine.CPU_FEATURES)
    return widest if same else f"{widest}, unlike the driver: compiles its own kernels"


def problems(executors: Sequence[Executor]) -> list[str]:
    """List what is wrong, each once with the number of executors."""
    reported = Counter(executor.obstacle(streaming=True) for executor in executors)
    late = sum(abs(executor.late) >= _LATE for executor in executors)
    found = [f"{many} of {len(executors)}: {text}" for text, many in reported.items() if text is not None]
    return found + (
        [f"{late} of {len(executors)}: the clock differs from the driver's by {_LATE:.0f} s or more"]
        if late
        else []
    )
