"""The processes of a driver, found by the session it leads: itself, its JVM, and Spark's workers of Python."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.spark.session import DAEMON

ROOT = Path(__file__).parents[2]
# A JVM that soon dies gains nothing from the slower of its compilers, which takes most of the time until a first batch.
JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@dataclass(frozen=True)
class Found:
    """A process that lives."""

    pid: int
    parent: int
    command: str


def started(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start a driver in a group of its own, Java and Python workers with it."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "tests.fault.driver", str(folder), *options]
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(
            command,
            env={**os.environ, **JAVA, "PYTHONPATH": paths},
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )


def living() -> Iterator[tuple[Found, int]]:
    """List all processes that live, and the sessions they are of."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if fields[0] != "Z":
                yield Found(int(entry.name), int(fields[1]), command), int(fields[3])


def members(leader: int) -> list[Found]:
    """List the living processes of a session."""
    return [process for process, session in living() if session == leader]


def below(pid: int) -> list[Found]:
    """List the children of a process, and theirs."""
    found, alive = [], [process for process, _ in living()]
    parents = {pid}
    while some := [process for process in alive if process.parent in parents and process not in found]:
        found += some
        parents = {process.pid for process in some}
    return found


def victims(leader: int, kind: str) -> list[int]:
    """Choose among the processes of a driver: the driver itself, its JVM, or a worker that runs tasks."""
    if kind == "driver":
        return [leader]
    alive = members(leader)
    if kind == "jvm":
        return [process.pid for process in alive if "java" in process.command.split(" ")[0]]
    daemons = {process.pid for process in alive if f"-m {DAEMON}" in process.command}
    return [process.pid for process in alive if process.pid in daemons and process.parent in daemons]


def kill(pid: int) -> bool:
    """Kill a process; tell whether it was there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Make sure that nothing of a driver lives on."""
    for member in members(process.pid):
        kill(member.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
