"""What an executor reports. Its Python may lack every package: only the standard library is used.

Spark ships this module by value (see `preflight.py`), so functions import what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

EXECUTOR_PACKAGES = ("pyarrow", "numpy", "llvmlite", "pandas", "polars")
REQUIRED_ON_EXECUTORS = ("pyarrow", "numpy", "llvmlite")


def surveyor(paths: Mapping[str, Sequence[tuple[str, str]]], seconds: float) -> Callable[[int], str]:
    """Return the function of a task. It occupies its core for some seconds, so that other executors get tasks too.

    Paths come with the options for their object stores, which travel inside the function.
    """
    surveyed = dict(paths)

    def survey(number: int) -> str:
        import json  # noqa: PLC0415 - as all imports here
        import time  # noqa: PLC0415

        found = {
            **machine(),
            **packages(),
            "paths": [[path, reachable(path, options)] for path, options in surveyed.items()],
            "clock": time.time(),
        }
        if seconds:
            time.sleep(seconds)
        return json.dumps(found)

    return survey


def machine() -> dict[str, object]:
    """Describe the machine, and identify the executor by its JVM, the parent of the daemon of Python workers."""
    import os  # noqa: PLC0415
    import platform  # noqa: PLC0415
    import sys  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    def read(path: str) -> str:
        try:
            return Path(path).read_text(encoding="utf-8")
        except OSError:
            return ""

    status = read(f"/proc/{os.getppid()}/stat").rpartition(")")[2].split()
    cpu = dict(
        line.split(":", 1) for line in read("/proc/cpuinfo").split("\n\n")[0].splitlines() if ":" in line
    )
    flags = {name.strip(): value.split() for name, value in cpu.items()}
    limits = [read("/sys/fs/cgroup/memory.max"), read("/sys/fs/cgroup/memory/memory.limit_in_bytes")]
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "host": platform.node(),
        "executor": status[1] if len(status) > 1 else os.getcwd(),  # noqa: PTH109
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "executable": sys.executable,
        "features": flags.get("flags") or flags.get("Features") or [],
        "memory": min([physical, *(int(limit) for limit in limits if limit.strip().isdigit())]),
    }


def packages() -> dict[str, object]:
    """Import Penstock, and find the versions of the packages that it needs."""
    import importlib  # noqa: PLC0415
    from importlib import metadata  # noqa: PLC0415

    def version(name: str) -> str | None:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    try:
        penstock = str(importlib.import_module("penstock").__version__)
    except ImportError as error:
        return {
            "penstock": None,
            "problem": str(error),
            "versions": {name: version(name) for name in EXECUTOR_PACKAGES},
        }
    versions = {name: version(name) for name in EXECUTOR_PACKAGES}
    missing = [name for name in REQUIRED_ON_EXECUTORS if versions[name] is None]
    problem = f"no {', '.join(missing)}" if missing else None
    return {"penstock": penstock, "problem": problem, "versions": versions}


def reachable(path: str, options: Sequence[tuple[str, str]] = ()) -> str:
    """Say whether a path is there."""
    import glob  # noqa: PLC0415
    import os  # noqa: PLC0415

    if "://" in path:
        return in_store(path, options)
    if any(sign in path for sign in "*?["):
        return f"{len(glob.glob(path, recursive=True))} files"  # noqa: PTH207
    if not os.path.exists(path):  # noqa: PTH110
        return "missing"
    if not os.access(path, os.R_OK):
        return "not readable"
    return "writable" if os.access(path, os.W_OK) else "readable"


def in_store(uri: str, options: Sequence[tuple[str, str]]) -> str:
    """Say whether there are files at a URI. Penstock's own reader finds them, since that is what queries use."""
    try:
        from penstock.errors import PenstockError  # noqa: PLC0415
        from penstock.sources.paths import find  # noqa: PLC0415
        from penstock.storage.access import Access  # noqa: PLC0415
    except ImportError:
        return "not tried: there is no Penstock"
    try:
        found = find(uri, even=False, access=Access(tuple(options)))
    except PenstockError as error:
        return "missing" if "no file matches" in str(error) else str(error)
    return f"{len(found)} files"
