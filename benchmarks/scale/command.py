"""Run `python -m benchmarks scale`: measure, fit, predict, simulate, and print the results."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.scale.measure import ways
from benchmarks.scale.model import Measured, Model, off_by, shown
from benchmarks.scale.simulate import Outcome
from benchmarks.scale.study import Scene, Study, simulated, study
from penstock.calibration.machine import facts

MOST_ROUNDS = 3  # rounds, each of about forty jobs


def run_scale(rows: int, repeat: int, target: Path | None) -> None:
    """Run the study for every available way, then simulate with the last, which is Spark if it is installed."""
    console = Console()
    cores = len(os.sched_getaffinity(0))
    with (
        tempfile.TemporaryDirectory(prefix="penstock-scale-") as folder,
        ways(cores) as found,
        console.status("measuring") as status,
    ):
        studies: list[Study] = []
        for way in found:
            studies.append(study(way, rows, Path(folder), min(repeat, MOST_ROUNDS), status.update))
            print_study(console, studies[-1])
    outcomes = simulated(studies[-1].model)
    print_simulation(console, outcomes)
    if target is not None:
        target.write_text(json.dumps(document(studies, outcomes), indent=1), encoding="utf-8")


def print_study(console: Console, made: Study) -> None:
    """Print the model, and its prediction errors on unseen jobs."""
    console.print(f"{made.way}: {shown(made.model)}", highlight=False)
    table = Table("rows", "results", "tasks", "processor s", "predicted", "off by", "clock s")
    for point in (*made.fitted, *made.unseen):
        table.add_row(*_cells(made.model, point), style=None if point in made.unseen else "dim")
    console.print(table)
    console.print(f"{made.way}: unseen jobs are predicted within {made.worst:.0%}", highlight=False)


def _cells(model: Model, point: Measured) -> list[str]:
    job = point.job
    amounts = [f"{amount:,}" for amount in (job.rows, job.results, job.tasks)]
    found = [
        f"{point.work:.2f}",
        f"{model.work(job):.2f}",
        f"{off_by(model, point):+.0%}",
        f"{point.clock:.2f}",
    ]
    return amounts + found


def print_simulation(console: Console, outcomes: Sequence[tuple[Scene, Outcome]]) -> None:
    """Print the outcomes of the simulated jobs."""
    heads = ("lake", "row groups", "tasks", "planned s", "read again", "largest", "took s", "model s", "busy")
    table = Table(*heads)
    for scene, made in outcomes:
        table.add_row(
            scene.name,
            f"{made.row_groups:,}",
            f"{made.tasks:,}",
            f"{made.planning_seconds:.1f}",
            f"{made.read_again:.3f}",
            f"{made.largest:.2f}",
            f"{made.seconds:.0f}",
            f"{made.predicted:.0f}",
            f"{made.busy:.0%}",
        )
    console.print(table)


def document(studies: Sequence[Study], outcomes: Sequence[tuple[Scene, Outcome]]) -> dict[str, object]:
    """Return all studies and outcomes as JSON values."""
    return {
        "suite": "scale",
        "machine": facts(),
        "studies": [asdict(study) for study in studies],
        "simulated": [asdict(scene) | asdict(made) for scene, made in outcomes],
    }
