"""Assign windows to workers, moving as few panes as possible before windows are emitted."""

from __future__ import annotations

import numpy as np

from penstock.operators.pane_aggregate.worker import Worker

# With fewer cells, threads that emit windows spend more time on the interpreter lock than in kernels.
CELLS_WORTH_THREADS = 1 << 18


def is_cheap_to_merge(workers: list[Worker]) -> bool:
    """Whether merging all tables is cheaper than emitting from several: same columns, and few cells."""
    first, *others = workers
    for other in others:
        if not first.same_columns(other):
            return False
    return sum([worker.cells for worker in workers]) < CELLS_WORTH_THREADS


def disjoint(workers: list[Worker]) -> list[Worker]:
    """Make each pane belong to one worker: the first that holds it merges the panes of the others."""
    for place, worker in enumerate(workers):
        for other in workers[place + 1 :]:
            assert worker.table is not None and other.table is not None
            shared = np.isin(other.table.panes[: other.slots], worker.table.panes[: worker.slots])
            if shared.any():
                worker.merge_slots(other, np.flatnonzero(shared).tolist())
                other.table.drop(shared)
    return [worker for worker in workers if worker.slots]


def runs_of(workers: list[Worker]) -> list[tuple[Worker, int]]:
    """The workers in pane order: (worker, the last pane before another worker's)."""
    held = [worker.table.panes[: worker.slots] for worker in workers if worker.table is not None]
    panes = np.concatenate(held)
    owners = np.repeat(np.arange(len(held)), [len(held_panes) for held_panes in held])
    order = np.argsort(panes)
    panes, owners = panes[order], owners[order]
    ends = np.append(np.flatnonzero(np.diff(owners)), len(owners) - 1)
    return [(workers[owners[end]], int(panes[end])) for end in ends]


def copy_overlap(runs: list[tuple[Worker, int]], reach: int) -> dict[int, int] | None:
    """Copy to each worker the panes up to `reach` after its runs, unless those are more than half of all panes.

    Return the number of slots of each worker before the copy, by worker id; None if nothing was copied.
    """
    workers = list({id(worker): worker for worker, _ in runs}.values())
    held = {id(worker): worker.slots for worker in workers}
    copied = [
        (worker, other, _behind([last for owner, last in runs[:-1] if owner is worker], other, reach))
        for worker in workers
        for other in workers
        if other is not worker
    ]
    if 2 * sum(len(slots) for _, _, slots in copied) > sum(held.values()):
        return None
    for worker, other, slots in copied:
        if len(slots):
            worker.copy_panes(other, slots)
    return held


def _behind(ends: list[int], other: Worker, reach: int) -> list[int]:
    """The slots of another worker's panes that lie up to `reach` after any of the ends."""
    assert other.table is not None
    panes = other.table.panes[: other.slots]
    near = np.zeros(len(panes), bool)
    for end in ends:
        near |= (panes > end) & (panes - end <= reach)
    found: list[int] = np.flatnonzero(near).tolist()
    return found
