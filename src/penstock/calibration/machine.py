"""Describe what a figure depends on: processor, memory bandwidth, versions."""

from __future__ import annotations

import gc
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

import numpy as np

# --- Time a call by the clock and by processor time.

Clock = Callable[[], float]
"""Seconds since some moment."""


def best_seconds(call: Callable[[], object], repeat: int) -> float:
    """Return the shortest of `repeat` calls."""
    return min(timed(call)[0] for _ in range(repeat))


def timed(call: Callable[[], object], processors: Clock = time.process_time) -> tuple[float, float]:
    """Call once without garbage collection, and return the seconds of the clock and of the processors."""
    gc.collect()
    gc.disable()
    try:
        begin, begin_cpu = time.perf_counter(), processors()
        answer = call()
        elapsed = time.perf_counter() - begin, processors() - begin_cpu
        del answer  # freeing the answer is not part of giving it
        return elapsed
    finally:
        gc.enable()


REPORTED_PACKAGES = ("penstock", "numpy", "pyarrow", "llvmlite", "polars", "duckdb", "pandas", "pyspark")
FAST_MEMORY = 25e9
"""Bytes per second: absolute targets are for a core that reads this fast, and are scaled to the core at hand."""
CPU_FEATURES = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "bmi2",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "neon",
    "asimd",
    "sve",
)


def facts() -> dict[str, object]:
    """The machine and the versions behind a figure."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "features": cpu_features(),
        "memory_gb": memory_gb(),
        "load": load(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": versions(),
    }


def cpu_info(path: Path = Path("/proc/cpuinfo")) -> Mapping[str, str]:
    """Read the first processor's block of `/proc/cpuinfo`; empty where there is none."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def cpu_model() -> str:
    """Name the processor."""
    return cpu_info().get("model name") or platform.processor() or platform.machine()


def cpu_features() -> list[str]:
    """List the vector features of this processor that kernels use."""
    info = cpu_info()
    flags = set((info.get("flags") or info.get("Features") or "").split())
    return [feature for feature in CPU_FEATURES if feature in flags]


def memory_gb() -> float | None:
    """Size of physical memory."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, OSError, ValueError):
        return None


def load() -> float | None:
    """The mean number of runnable programs during the last minute; None where the system does not count them."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def versions() -> dict[str, str | None]:
    """Installed versions, read from metadata without importing anything."""
    return {name: installed_version(name) for name in REPORTED_PACKAGES}


def installed_version(name: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def numpy_bandwidth(megabytes: int = 128, repeat: int = 3) -> float:
    """Estimate one core's read bandwidth in bytes a second, without a compiler."""
    data = np.ones(megabytes << 17, np.int64)
    return data.nbytes / best_seconds(lambda: np.add.reduce(data), repeat)


def java_version() -> str | None:
    """First line of `java -version`, or None if there is no Java."""
    java = shutil.which("java")
    if java is None:
        return None
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - java of PATH
    lines = (done.stderr or done.stdout).splitlines()
    return lines[0] if lines else None
