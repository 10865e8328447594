"""Report the capabilities of this machine and this installation."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import penstock as pk
from penstock.algorithms.joins.adapt.tree import TREES, Tree, save_trees, show
from penstock.calibration import machine
from penstock.calibration.calibrate import calibrate
from penstock.calibration.simulate import open_join_field
from penstock.cli.guard import CommandError
from penstock.codegen.cache import KernelCache, default_directory
from penstock.codegen.files import private_directory
from penstock.operators.joins.build_algorithms import machine_name
from penstock.runtime.engine import Engine
from penstock.spark.deploy.preflight import Executor, survey
from penstock.spark.deploy.survey import EXECUTOR_PACKAGES

REQUIRED_PACKAGES = ("penstock", "pyarrow", "numpy", "llvmlite", "typer", "rich")
OPTIONAL_PACKAGES = {
    "polars": "to_polars",
    "pandas": "to_pandas",
    "pyspark": "running on Spark",
}
MARKS = {"ok": ("ok  ", "green"), "info": ("-   ", "dim"), "bad": ("FAIL", "bold red")}
SLOW_MEMORY = 5e9


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `state` is ok, info (nothing wrong) or bad."""

    state: str
    subject: str
    text: str


def examine() -> None:
    """Print every finding; exit with 1 if a required component is broken."""
    console = Console()
    broken = False
    for finding in findings():
        broken |= finding.state == "bad"
        console.print(Text.assemble(MARKS[finding.state], " ", f"{finding.subject:<18}", finding.text))
    if broken:
        raise typer.Exit(1)


def findings() -> Iterator[Finding]:
    """Yield all findings, quick ones first."""
    yield Finding("ok", "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield from packages()
    yield processor()
    yield Finding("info", "memory", f"{machine.memory_gb()} GB")
    yield bandwidth()
    yield java()
    yield cache(default_directory())
    yield engine()


def packages() -> Iterator[Finding]:
    """Report the versions of required and optional packages."""
    for name in REQUIRED_PACKAGES:
        version = machine.installed_version(name)
        missing = "not installed as a distribution" if name == "penstock" else "missing: pip install penstock"
        state = "ok" if version else "info" if name == "penstock" else "bad"
        yield Finding(state, name, version or missing)
    for name, purpose in OPTIONAL_PACKAGES.items():
        version = machine.installed_version(name)
        yield Finding("ok" if version else "info", name, version or f"not installed; needed for {purpose}")


def processor() -> Finding:
    """Report the processor and its vector features."""
    features = " ".join(machine.cpu_features()) or "no vector features found"
    return Finding("ok", "processor", f"{machine.cpu_model()}, {os.cpu_count()} cores: {features}")


def bandwidth() -> Finding:
    """Measure the memory bandwidth of one core: the lower bound on the time of every query over data in memory."""
    speed = machine.numpy_bandwidth()
    text = f"one core reads {speed / 1e9:.1f} GB/s"
    return Finding("ok" if speed > SLOW_MEMORY else "info", "memory bandwidth", text)


def java() -> Finding:
    """Report the Java version, which only Spark needs."""
    found = machine.java_version()
    return Finding("ok" if found else "info", "java", found or "not found; only running on Spark needs it")


def cache(directory: Path | None) -> Finding:
    """Report the directory of compiled kernels: its size, or why it is not used."""
    if directory is None:
        return Finding("info", "kernel cache", "in memory only (PENSTOCK_CACHE_DIR is empty)")
    if not directory.exists():
        return Finding("ok", "kernel cache", f"{directory} (not made yet)")
    if not directory.is_dir() or not os.access(directory, os.W_OK):
        return Finding("bad", "kernel cache", f"{directory} cannot be written")
    _, problem = private_directory(directory)
    if problem:
        return Finding("info", "kernel cache", f"in memory only: {problem}")
    files = [file for file in directory.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    return Finding("ok", "kernel cache", f"{directory}: {len(files)} files, {size / 1024:.0f} KB")


def engine() -> Finding:
    """Compile and run a three-row query, and check its result."""
    return attempt("engine", small_query)


def attempt(subject: str, check: Callable[[], str]) -> Finding:
    """Convert an error into a finding, so that the report is complete."""
    try:
        return Finding("ok", subject, check())
    except Exception as error:  # noqa: BLE001 - as the docstring says
        return Finding("bad", subject, f"{type(error).__name__}: {error}")


def small_query() -> str:
    """Run a query with a known result."""
    table = pa.table({"t": pa.array([1, 2, 12]), "v": pa.array([1, 2, 3])})
    events = pk.from_arrow(table, time="t")
    totals = events.window(pk.tumbling(10)).agg(total=pk.sum("v")).collect().column("total").to_pylist()
    if totals != [3, 3]:
        raise AssertionError(f"a small query gave {totals} instead of [3, 3]")
    return "compiles and runs a small query"


# --- Report on the executors of a Spark cluster, in one table.

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


# --- `penstock doctor --calibrate`: measure the join algorithms on this machine and save the decision trees.


def run_calibration(scale: float) -> None:
    """Measure all join algorithms on this machine, and save the trees for `algorithm="auto"`."""
    console = Console()
    fields = [open_join_field(threads) for threads in sorted({1, Engine().workers})]
    with console.status("measuring joins, a few minutes") as status:
        trees = calibrate(fields, scale, status.update).trees
    print_trees(console, trees)
    cache = KernelCache(default_directory())
    if cache.directory is None:
        console.print(
            f"not saved: {cache.disabled or 'PENSTOCK_CACHE_DIR is empty'}", style="yellow", markup=False
        )
        return
    saved = save_trees(cache.directory, machine_name(), trees)
    console.print(f"saved as {saved}", highlight=False, markup=False)


def print_trees(console: Console, trees: Mapping[str, Tree]) -> None:
    """Print the tree of each target."""
    for target in TREES:
        console.print(f"\n{target}\n{show(trees[target])}", highlight=False, markup=False)
