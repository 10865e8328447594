"""`penstock bench`: hand over to the benchmarks of the repository, which are not part of the package."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import typer

import penstock
from penstock.cli.guard import CommandError

ABSENT = (
    "the benchmarks are not part of the installed package: clone the repository, "
    "then run `make bench SUITE=ysb` there"
)


def run_benchmarks(context: typer.Context) -> None:
    """Run `python -m benchmarks` with the arguments given, in this process."""
    folder = repository()
    if folder is None:
        raise CommandError(ABSENT)
    sys.path.insert(0, str(folder))  # before any other package of this name
    command = typer.main.get_command(import_module("benchmarks.command").app)
    code = command.main(context.args, "bench", standalone_mode=False, parent=context.parent)
    if code:
        raise typer.Exit(code)


def repository() -> Path | None:
    """Find the repository: the one this package is run from, or the one that holds an importable `benchmarks`.

    The current folder is not searched: a package of this common name may be anyone's.
    """
    candidates = [Path(penstock.__file__).resolve().parents[2]]
    spec = find_spec("benchmarks")
    if spec is not None:
        candidates += [Path(path).resolve().parent for path in spec.submodule_search_locations or ()]
    return next((folder for folder in candidates if is_repository(folder)), None)


def is_repository(folder: Path) -> bool:
    """Whether a folder holds the source of the package and its benchmarks."""
    return (folder / "benchmarks" / "command.py").is_file() and (folder / "src" / "penstock").is_dir()
