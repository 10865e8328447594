"""Processor time of a whole family of processes: this one, and all it started, Spark's among them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

PROC = Path("/proc")


def family_seconds(root: int | None = None, proc: Path = PROC) -> float:
    """Give the processor seconds that a process and its descendants, living or dead, have used so far."""
    if not (proc / "self").exists():
        return time.process_time()
    found = _all(proc)
    members = {root or os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, (parent, _) in found.items() if parent in members} - members
        members |= more
        grown = bool(more)
    seconds = sum(used for pid, (_, used) in found.items() if pid in members)
    return seconds / os.sysconf("SC_CLK_TCK")


def _all(proc: Path) -> dict[int, tuple[int, int]]:
    """Every process: its parent, and its ticks with those of children that have ended."""
    found = {}
    for folder in proc.iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it has just ended; its parent counts it
            fields = text.rpartition(")")[2].split()
            found[int(folder.name)] = int(fields[1]), sum(int(each) for each in fields[11:15])
    return found


def worked(call: Callable[[], object]) -> tuple[float, float]:
    """Call once, and give the clock's seconds and those of all processors, at least one tick of these."""
    clock, used = time.perf_counter(), family_seconds()
    call()
    return time.perf_counter() - clock, max(family_seconds() - used, 1 / os.sysconf("SC_CLK_TCK"))
