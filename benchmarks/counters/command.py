"""The command `python -m benchmarks counters`: each contender in a process of its own under callgrind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.reference import FLAGS, NoCompilerError, build, find_compiler
from benchmarks.report import save_json

NAMES = ("Penstock", "Penstock, generic", "C++ by hand", "Polars", "DuckDB")
LEVEL = "-march=x86-64-v3"  # valgrind knows no AVX-512
CACHES = ("--I1=32768,8,64", "--D1=32768,8,64", "--LL=33554432,16,64")
TIMEOUT = 1_800.0
SWITCH = """#include <valgrind/callgrind.h>
void start(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void stop(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
"""
PAPER = {
    "Grizzly++ (paper)": (7.0, 0.38, 1.39, 1.92, 41.6),
    "Grizzly (paper)": (18.2, 0.78, 3.5, 1.8, 139.4),
    "Saber (paper)": (184.0, 0.25, 11.9, 10.9, 1157.0),
    "Flink (paper)": (701.0, 2.23, 23.8, 18.7, 4162.0),
}
"""Table 1: branches, mispredictions, L1-D and last-level misses and instructions a record, by hardware counters."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts a row."""

    branches: float
    mispredicted: float
    l1_misses: float
    last_level_misses: float
    instructions: float


def run_counters(rows: int, contenders: str, json: Path | None) -> None:
    """Count each contender, print the table with the paper's beside it, and save it if requested."""
    console, valgrind = Console(), shutil.which("valgrind")
    if valgrind is None:
        raise SystemExit("valgrind is not installed")
    chosen = [name for name in NAMES if not contenders or name in contenders.split(";")]
    found: dict[str, Counts] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-counters-") as name:
        folder = Path(name)
        libraries = str(compiled_switch(folder)), str(compiled_reference(folder))
        for contender in chosen:
            console.print(f"{contender}: {rows:,} rows under callgrind", style="dim")
            found[contender] = counted(valgrind, contender, rows, libraries, folder)
    console.print(table_of(rows, found))
    if json is not None:
        when = datetime.now(UTC).isoformat(timespec="seconds")
        save_json(json, {"suite": "counters", "time": when, "rows": rows, "counts": _plain(found)})


def counted(valgrind: str, contender: str, rows: int, libraries: Sequence[str], folder: Path) -> Counts:
    """Run one contender; the counts are those of one warm call."""
    out = folder / "out"
    for old in folder.glob("out*"):
        old.unlink()
    options = ("--instr-atstart=no", "--cache-sim=yes", "--branch-sim=yes", "--combine-dumps=yes", *CACHES)
    path = os.pathsep.join(part for part in sys.path if part)
    command = [valgrind, "--tool=callgrind", "-q", *options, f"--callgrind-out-file={out}", sys.executable]
    done = subprocess.run(
        [*command, "-m", "benchmarks.counters.worker", contender, str(rows), *libraries],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    if done.returncode != 0 or not out.exists():
        raise SystemExit(f"{contender} does not run under valgrind: {' '.join(done.stderr.split())[-300:]}")
    return per_row(out.read_text(), rows)


def per_row(text: str, rows: int) -> Counts:
    r"""Sum what callgrind dumped.

    >>> per_row("events: Ir Dr D1mr D1mw DLmr DLmw Bc Bcm Bi Bim\ntotals: 80 9 4 2 1 1 20 3 2 1", 2)
    Counts(branches=11.0, mispredicted=2.0, l1_misses=3.0, last_level_misses=1.0, instructions=40.0)
    """
    names: list[str] = []
    total: dict[str, int] = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(":")
        if kind == "events":
            names = rest.split()
        elif kind == "totals":
            for name, value in zip(names, map(int, rest.split()), strict=False):
                total[name] = total.get(name, 0) + value
    sums = [("Bc", "Bi"), ("Bcm", "Bim"), ("D1mr", "D1mw"), ("DLmr", "DLmw"), ("Ir",)]
    return Counts(*(sum(total.get(name, 0) for name in group) / rows for group in sums))


def compiled_switch(folder: Path) -> Path:
    """Compile what switches counting on and off: requests to valgrind are a few instructions."""
    source, target = folder / "switch.c", folder / "switch.so"
    source.write_text(SWITCH, encoding="ascii")
    compiler = shutil.which("cc") or find_compiler()
    done = subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", str(target), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise NoCompilerError(f"valgrind's header is missing: {done.stderr.strip()[:200]}")
    return target


def compiled_reference(folder: Path) -> Path:
    """Compile the hand-written C++ for a processor that valgrind knows."""
    return build(
        find_compiler(), "ysb.cpp", folder / "ysb.so", [LEVEL if "march" in flag else flag for flag in FLAGS]
    )


def table_of(rows: int, found: Mapping[str, Counts]) -> Table:
    """Lay the counts out as Table 1, the paper's own below."""
    table = Table(title=f"ysb-keyed, {rows:,} rows, one thread, a row", title_justify="left")
    table.add_column("contender")
    for title in ("branches", "mispredicted", "L1-D misses", "last-level misses", "instructions"):
        table.add_column(title, justify="right")
    for name, counts in found.items():
        table.add_row(
            name, *(f"{value:.3g}" if value < 100 else f"{value:.0f}" for value in asdict(counts).values())
        )
    for name, values in PAPER.items():
        table.add_row(name, *(f"{value:g}" for value in values), style="dim")
    return table


def _plain(found: Mapping[str, Counts]) -> dict[str, dict[str, float]]:
    return {name: asdict(counts) for name, counts in found.items()}
