"""`python -m benchmarks live`: run the suite, print it, save it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks.live.applications import application_cases
from benchmarks.live.builds import Worker, workers_of
from benchmarks.live.feed import Feed
from benchmarks.live.holding import holding_cases
from benchmarks.live.peers import Opened, PeerRun, run_peers
from benchmarks.live.peers.bytewax import open_bytewax
from benchmarks.live.peers.flink import open_flink
from benchmarks.live.peers.pathway import open_pathway
from benchmarks.live.peers.spark import open_spark
from benchmarks.live.points import Point
from benchmarks.live.queries import QUERIES
from benchmarks.live.report import document_of, print_report
from benchmarks.live.suite import (
    BUFFERS,
    QUICK_BUFFERS,
    VARIANTS,
    Contender,
    LiveOptions,
    Report,
    add_throughput,
    latencies,
)
from benchmarks.report import save_json
from benchmarks.run import parse_counts, parse_threads, print_machine
from penstock.calibration.machine import facts
from penstock.cli.guard import CommandError

QUICK_REPEAT = 1
PEERS: dict[str, Callable[[], Opened]] = {
    "flink": open_flink,
    "spark": open_spark,
    "bytewax": open_bytewax,
    "pathway": open_pathway,
}


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """The flags of the suite, as given."""

    rows: int
    queries: str
    variants: str
    buffers: str
    threads: str
    repeat: int
    latency: bool
    applications: bool
    held: bool
    baseline: str | None
    peers: str
    quick: bool
    json: Path | None
    plot: Path | None


def run_live_suite(request: LiveRequest) -> None:
    """Run the suite, print the results, and save them if requested."""
    console, options = Console(), options_of(request)
    peers_of(request)  # a mistake in a flag is found at once
    machine = facts() | {"compiler": "no C++ takes part"}
    print_machine(console, machine)
    with console.status("starting") as status, workers_of(request.baseline) as workers:
        for worker in workers:
            console.print(
                f"{worker.build.name}: {worker.version}, pushes by {', '.join(worker.ways)}", style="dim"
            )
        report = Report()
        try:
            measure(report, request, options, workers, status.update)
        except KeyboardInterrupt:
            console.print("interrupted; this is what had been measured", style="yellow")
    print_report(console, report)
    document = document_of(report, datetime.now(UTC).isoformat(timespec="seconds"), machine)
    if request.json is not None:
        save_json(request.json, document)
    if request.plot is not None:
        from benchmarks.live.report import save_live_plot  # noqa: PLC0415 - matplotlib may be absent

        save_live_plot(request.plot, document)


def measure(
    report: Report,
    request: LiveRequest,
    options: LiveOptions,
    workers: Sequence[Worker],
    progress: Callable[[str], None],
) -> None:
    """Add to the report all that the request asks for: peers before latency, which takes longest."""
    add_throughput(report, options, workers, progress)
    if request.applications:
        report.cases += application_cases(options, progress)
    if request.held:
        report.cases += holding_cases(progress)
    run = PeerRun(peers_of(request), max(options.threads), options.rows)
    ours = Contender(workers[0], Point("", Feed(), 0, max(options.threads)))
    run_peers(report, run, options, ours, progress)
    if options.latency:
        report.latencies += latencies(report.cases, options, workers, progress)


def peers_of(request: LiveRequest) -> Sequence[Callable[[], Opened]]:
    """Read which peers to run; none if the flag is empty."""
    names = parse_names(request.peers, list(PEERS), "--peers") if request.peers else ()
    return [PEERS[name] for name in names]


def options_of(request: LiveRequest) -> LiveOptions:
    """Read the flags."""
    variants = parse_names(request.variants, list(VARIANTS), "--variants")
    return LiveOptions(
        rows=request.rows // 10 if request.quick else request.rows,
        queries=parse_names(request.queries, list(QUERIES), "--queries"),
        variants=variants[:1] if request.quick else variants,
        buffers=parse_buffers(request.buffers, request.quick),
        threads=parse_threads(request.threads),
        repeat=QUICK_REPEAT if request.quick else request.repeat,
        latency=request.latency,
        quick=request.quick,
    )


def parse_names(text: str, known: Sequence[str], flag: str) -> Sequence[str]:
    """Parse `a,b`; nothing means all."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CommandError(f"{flag}: unknown {', '.join(unknown)}: choose from {', '.join(known)}")
    return names or known


def parse_buffers(text: str, quick: bool) -> Sequence[int]:
    """Parse `100,1000`; nothing means the usual sizes."""
    if not text:
        return QUICK_BUFFERS if quick else BUFFERS
    return parse_counts(text, "--buffers", "100,1000")
