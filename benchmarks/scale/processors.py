"""Processor time of a whole family of processes: this one, and all it started, Spark's among them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")

Name = tuple[int, int]
"""A process: its number, and when it began, for numbers are used again."""


@dataclass(frozen=True, slots=True)
class Process:
    """Its parent's number, the ticks it has used itself, and those of children that it has waited for."""

    parent: int
    own: int
    reaped: int


@dataclass(slots=True)
class FamilyClock:
    """Tell the processor seconds that a process and its descendants, living or dead, have used so far.

    Parents count children they wait for. Others are lost when they end, as some of Spark's workers are: what they
    had used when they were last seen is kept here, so that time never runs back.
    """

    root: int = field(default_factory=os.getpid)
    proc: Path = PROC
    _seen: dict[Name, Process] = field(default_factory=dict)
    _lost: int = 0

    def __call__(self) -> float:
        if not (self.proc / "self").exists():
            return time.process_time()
        found = _family(_all(self.proc), self.root)
        self._lost += sum(process.own + process.reaped for process in self._missing(found))
        self._seen = found
        ticks = self._lost + sum(process.own + process.reaped for process in found.values())
        return ticks / os.sysconf("SC_CLK_TCK")

    def _missing(self, found: dict[Name, Process]) -> list[Process]:
        """List processes that have ended and are in nobody's count."""
        before = {pid: process.reaped for (pid, _), process in self._seen.items()}
        gained = {pid: process.reaped - before.get(pid, 0) for (pid, _), process in found.items()}
        ended = [process for name, process in self._seen.items() if name not in found]
        return [process for process in ended if gained.get(process.parent, 0) < process.own + process.reaped]


def _family(found: dict[Name, Process], root: int) -> dict[Name, Process]:
    members = {root}
    grown = True
    while grown:
        more = {pid for (pid, _), process in found.items() if process.parent in members} - members
        members |= more
        grown = bool(more)
    return {name: process for name, process in found.items() if name[0] in members}


def _all(proc: Path) -> dict[Name, Process]:
    found = {}
    for folder in proc.iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it has just ended
            fields = text.rpartition(")")[2].split()
            own, reaped = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
            found[int(folder.name), int(fields[19])] = Process(int(fields[1]), own, reaped)
    return found


def worked(call: Callable[[], object], processors: FamilyClock | None = None) -> tuple[float, float]:
    """Call once, and give the clock's seconds and those of all processors, at least one tick of these."""
    family = processors or FamilyClock()
    clock, used = time.perf_counter(), family()
    call()
    return time.perf_counter() - clock, max(family() - used, 1 / os.sysconf("SC_CLK_TCK"))
