"""The command `python -m benchmarks nexmark`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks.figures import Case
from benchmarks.live.command import parse_names
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.suite import NexmarkOptions, geometric_mean, nexmark_cases, spark_cases
from benchmarks.report import figure_table, print_case, save_json, to_json
from benchmarks.run import print_machine
from penstock.calibration.machine import facts

PEERS = ("duckdb", "flink", "spark")


@dataclass(frozen=True, slots=True)
class NexmarkRequest:
    """The flags of the suite, as given."""

    events: int
    queries: str
    threads: int
    repeat: int
    peers: str
    quick: bool
    json: Path | None


def run_nexmark(request: NexmarkRequest) -> None:
    """Run the suite, print each case when it is done, and save them if requested."""
    console, options = Console(), options_of(request)
    machine = facts() | {"compiler": "no C++ takes part"}
    print_machine(console, machine)
    cases: list[Case] = []
    with console.status("starting") as status:
        for case in nexmark_cases(options, status.update):
            cases.append(case)
            print_case(console, case)
        alone = [*geometric_mean(cases)]
        console.print(figure_table(alone))
        if "spark" in options.peers:
            for case in spark_cases(options, status.update):
                cases.append(case)
                print_case(console, case)
    if request.json is not None:
        when = datetime.now(UTC).isoformat(timespec="seconds")
        save_json(request.json, to_json("nexmark", when, machine, cases, alone))


def options_of(request: NexmarkRequest) -> NexmarkOptions:
    """Read the flags."""
    return NexmarkOptions(
        events=request.events // 10 if request.quick else request.events,
        threads=request.threads,
        repeat=request.repeat,
        queries=parse_names(request.queries, list(QUERIES), "--queries"),
        peers=parse_names(request.peers, list(PEERS), "--peers"),
    )
