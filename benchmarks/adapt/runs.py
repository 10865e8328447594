"""Run contenders push by push, in turns, and keep what each push took and gave."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

import penstock as pk
from benchmarks.adapt.workloads import Phase, WrongAnswerError, batch_at, columns_of
from penstock.api.stream import Stream
from penstock.runtime.session import Session

Clock = Callable[[], float]
Progress = Callable[[str], None]


@dataclass
class Runner:
    """One contender: an engine, and seconds of each push by phase. `late` runs in the last pushes of a phase only."""

    name: str
    engine: pk.Engine
    late: bool = False
    seconds: dict[int, list[float]] = field(default_factory=dict)
    session: Session | None = None

    def push(self, query: Stream, batch: pa.RecordBatch, phase: int, clock: Clock) -> tuple[int, int]:
        """Push rows, note the time; return a checksum of the results."""
        if self.session is None:
            self.session = query.compiled().open(self.engine, bounded=False)
        begin = clock()
        made = self.session.push("rows", batch)
        self.seconds.setdefault(phase, []).append(clock() - begin)
        return sum(out.num_rows for out in made), sum(
            pc.sum(out.column("total")).as_py() or 0 for out in made
        )

    def best(self, phase: int, last: int = 4) -> float:
        """The best of the last pushes of a phase, in seconds."""
        return min(self.seconds[phase][-last:])


@dataclass(frozen=True)
class Plan:
    """What a figure runs: pushes of `rows` rows, `pushes` of them in a phase, of which the last `measured` count."""

    query: Stream
    phases: Sequence[Phase]
    rows: int
    pushes: int
    measured: int
    clock: Clock = time.thread_time  # without what is compiled in the background


def run(plan: Plan, runners: Sequence[Runner], progress: Progress) -> None:
    """Push all phases to all contenders in turns; the answers of those that see the same pushes must be equal."""
    names, number = plan.query.compiled().columns["rows"], 0
    for phase, nature in enumerate(plan.phases):
        progress(f"{nature.name}: {plan.pushes} x {plan.rows:,} rows, {len(runners)} contenders")
        columns = [columns_of(nature, names, plan.rows, 10 * phase + seed) for seed in range(2)]
        for push in range(plan.pushes):
            batch = batch_at(columns[push % 2], names, number)
            number += 1
            first = push * 7 % len(runners)  # whoever is first meets new rows in cold caches
            found = {
                runner.name: runner.push(plan.query, batch, phase, plan.clock)
                for runner in [*runners[first:], *runners[:first]]
                if not runner.late or push >= plan.pushes - plan.measured
            }
            _check(found, [runner for runner in runners if not runner.late])
            if push > plan.pushes - plan.measured:  # a late contender's first push ends windows of other rows
                _check(found, runners)


def _check(found: dict[str, tuple[int, int]], runners: Sequence[Runner]) -> None:
    answers = {found[runner.name] for runner in runners if runner.name in found}
    if len(answers) > 1:
        raise WrongAnswerError(f"results differ: {found}")


def changes_of(runner: Runner) -> list[str]:
    """What a contender has changed while it ran."""
    return [] if runner.session is None else [str(change) for change in runner.session.metrics.adaptations]
