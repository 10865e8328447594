"""The builds to measure: the code at hand, and a baseline that is installed into a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from benchmarks.live.points import Found, Point
from penstock.errors import PenstockError

REPOSITORY = Path(__file__).resolve().parents[2]
CURRENT = "Penstock"


class BuildError(PenstockError, RuntimeError):
    """A baseline cannot be installed, or its process does not answer."""


@dataclass(frozen=True, slots=True)
class Build:
    """A build of Penstock: its name in reports, and the folder that holds the package."""

    name: str
    folder: Path


def current() -> Build:
    """Return the code of this repository."""
    return Build(CURRENT, REPOSITORY / "src")


def install(wheel_or_revision: str, folder: Path) -> Build:
    """Install a wheel, or a git revision of this repository, into a folder."""
    wheel = Path(wheel_or_revision)
    if wheel.suffix == ".whl":
        if not wheel.is_file():
            raise BuildError(f"--baseline {wheel_or_revision}: no such wheel")
        what = wheel
    else:
        what = _extracted(wheel_or_revision, folder / "source")
    target = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    _run([*pip, "--target", str(target), str(what)], f"--baseline {wheel_or_revision}: cannot install it")
    return Build(wheel.stem if what is wheel else wheel_or_revision, target)


def _extracted(revision: str, folder: Path) -> Path:
    """Write the files of a revision; the working tree stays as it is."""
    command = ["git", "-C", str(REPOSITORY), "archive", "--format=tar", "--end-of-options", revision]
    text = _run(command, f"--baseline {revision}: neither a wheel (*.whl) nor a revision of this repository")
    with tarfile.open(fileobj=BytesIO(text)) as files:
        files.extractall(folder, filter="data")
    return folder


def _run(command: Sequence[str], problem: str) -> bytes:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{problem}: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return done.stdout


class Worker:
    """A process that measures points with one build; it idles while others measure."""

    def __init__(self, build: Build) -> None:
        self.build = build
        path = os.pathsep.join([str(build.folder), str(REPOSITORY)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.live.worker"],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        greeting = self._answer()
        if not Path(greeting["package"]).is_relative_to(build.folder.resolve()):
            self.close()
            raise BuildError(f"{build.name}: another penstock was imported, from {greeting['package']}")
        self.version: str = greeting["version"]
        self.ways: list[str] = greeting["ways"]

    def measure(self, point: Point) -> Found:
        """Measure a point."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(point.as_json()) + "\n")
        self._process.stdin.flush()
        return Found(**self._answer())

    def _answer(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BuildError(f"{self.build.name}: the process ended with exit code {self._process.wait()}")
        answer: Mapping[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def workers_of(baseline: str | None) -> Iterator[list[Worker]]:
    """Start a worker for the code at hand, and one for the baseline if there is one."""
    with ExitStack() as stack:
        builds = [current()]
        if baseline is not None:
            folder = stack.enter_context(TemporaryDirectory(prefix="penstock-baseline-"))
            builds.append(install(baseline, Path(folder)))
        yield [stack.enter_context(Worker(build)) for build in builds]
