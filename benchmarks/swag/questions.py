"""Ask whole queries over sliding windows, look-backs, sessions and counts: Penstock against the peers.

A peer that is slow is asked about fewer rows, and so is Penstock once more, so that the answers can be
compared; speeds are rows a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

import penstock as pk
from benchmarks.contenders import PENSTOCK_GROUP
from benchmarks.figures import Case, Figure, first_word, library_speed, speed
from benchmarks.measure import Contender, Outcome, compare
from benchmarks.peers import PEER_GROUP, failing
from benchmarks.swag.sweeps import Progress

Query = Callable[[pa.Table], Any]
Clean = Callable[[pa.Table], pa.Table]
Maker = Callable[[pa.Table, int], tuple[Callable[[], Any], Callable[[Any], pa.Table]]]
"""Takes the rows and a thread count; gives what is timed, and how its answer becomes a table."""
WHOLE = "1/1"


@dataclass(frozen=True, slots=True)
class Peer:
    """The same question elsewhere. `part` is the share of the rows it is asked about."""

    name: str
    make: Maker
    part: int = 1
    bar: float | None = None

    @property
    def library(self) -> str:
        """The name `--peers` knows it by."""
        return first_word(self.name).lower()


@dataclass(frozen=True, slots=True)
class Question:
    """A query over a table, the same in peers, and the rows a second it must reach (`floor`, in millions).

    `part` is the share of a run's rows that are drawn for it.
    """

    name: str
    table: Callable[[int], pa.Table]
    query: Query
    clean: Clean
    peers: tuple[Peer, ...] = ()
    keys: int = 1
    part: int = 1
    floor: float | None = None


def question_case(
    asked: Question, rows: int, wanted: Sequence[str], threads: int, repeat: int, progress: Progress
) -> Case:
    """Ask everyone."""
    progress(f"{asked.name}: generate")
    table = asked.table(max(1, rows // asked.part))
    lined_up = question_contenders(asked, table, wanted, threads)
    outcomes = tuple(compare(lined_up, repeat, lambda text: progress(f"{asked.name}: {text}")))
    made = Case(asked.name, table.num_rows, asked.keys, outcomes)
    return replace(made, figures=question_figures(made, asked))


def question_contenders(
    asked: Question, table: pa.Table, wanted: Sequence[str], threads: int
) -> list[Contender]:
    """Penstock over all rows and over each part that a peer is asked about, and the peers."""
    chosen = [peer for peer in asked.peers if peer.library in wanted]
    made: list[Contender] = []
    for part in sorted({1, *(peer.part for peer in chosen)}):
        few = table.slice(0, max(1, table.num_rows // part))
        mine = penstock_contender(asked, few, threads, "Penstock" if part == 1 else f"Penstock, 1/{part}")
        theirs = [peer_contender(peer, few, threads) for peer in chosen if peer.part == part]
        made += [replace(outcome, question=f"1/{part}", rows=few.num_rows) for outcome in (mine, *theirs)]
    return made


def penstock_contender(asked: Question, table: pa.Table, threads: int, name: str) -> Contender:
    """Penstock's whole `collect()`."""

    def run() -> Any:
        return asked.query(table).collect(engine=pk.Engine(threads=threads))

    return Contender(name, run, asked.clean, threads, PENSTOCK_GROUP)


def peer_contender(peer: Peer, table: pa.Table, threads: int) -> Contender:
    """A peer, its own form of the table made outside the timing; one that is absent says so."""
    name = peer.name if peer.part == 1 else f"{peer.name}, 1/{peer.part}"
    try:
        run, to_table = peer.make(table, threads)
    except ImportError as error:
        return Contender(name, failing(error), threads=threads, group=PEER_GROUP)
    return Contender(name, run, to_table, 1 if peer.library == "pandas" else threads, PEER_GROUP)


def question_figures(case: Case, asked: Question) -> tuple[Figure, ...]:
    """Penstock's speed over each library's best, and its own floor."""
    ours = next((speed(case, outcome) for outcome in case.outcomes if is_ours(outcome)), None)
    figures = [library_figure(case, ours, asked.peers, library) for library in libraries(asked.peers)]
    if asked.floor is not None:
        figures.append(Figure(f"{case.name}: Penstock", ours and ours / 1e6, asked.floor, unit="M rows/s"))
    return tuple(figures)


def is_ours(outcome: Outcome) -> bool:
    """Tell Penstock's outcome over all rows from its outcomes over parts."""
    return outcome.group == PENSTOCK_GROUP and outcome.question == WHOLE


def libraries(several: Sequence[Peer]) -> list[str]:
    """The peers' libraries, each once."""
    return list(dict.fromkeys(first_word(peer.name) for peer in several))


def library_figure(case: Case, ours: float | None, several: Sequence[Peer], library: str) -> Figure:
    """Penstock against the fastest form of one library."""
    theirs = library_speed(case, library)
    bars = [peer.bar for peer in several if peer.name.startswith(library) and peer.bar]
    value = ours / theirs if ours and theirs else None
    return Figure(f"{case.name}: Penstock / {library}", value, max(bars, default=None))
