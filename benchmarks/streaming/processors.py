"""How much work this process and all that it has started have done: Spark's JVM, and its workers in Python."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def tree_seconds() -> float:
    """Count seconds of processors, those of children that have ended included; 0 where the system does not tell."""
    if not _PROC.is_dir():
        return 0.0
    found = {number: stat for number in _numbers() if (stat := _stat(number)) is not None}
    ticks, waiting = 0, [os.getpid()]
    while waiting:
        parent = waiting.pop()
        ticks += found[parent][1] if parent in found else 0
        waiting += [number for number, (above, _) in found.items() if above == parent]
    return ticks / os.sysconf("SC_CLK_TCK")


def _numbers() -> list[int]:
    return [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]


def _stat(number: int) -> tuple[int, int] | None:
    """Give a process's parent and its ticks: of its own and of children it has waited for, in user code and the system."""
    try:
        text = (_PROC / str(number) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), sum(map(int, fields[11:15]))
