"""Report the capabilities of this machine and this installation."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import typer
from rich.console import Console
from rich.text import Text

import penstock as pk
from penstock.calibration import machine
from penstock.codegen.cache import default_directory
from penstock.codegen.files import private_directory

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
