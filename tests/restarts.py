"""Run a query in several lives: stop, save, go on in a new session, perhaps with another engine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

import penstock as pk

ENGINES = {
    "as it is": pk.Engine(),
    "one thread": pk.Engine(threads=1),
    "two threads, tiny tasks": pk.Engine(threads=2, task_bytes=64),
    "three threads, tiny tasks": pk.Engine(threads=3, task_bytes=64),
    "nothing assumed": pk.Engine(adaptive=False),
}

Push = tuple[str, pa.RecordBatch]


def in_one_life(query: Any, pushes: Sequence[Push]) -> tuple[list[pa.RecordBatch], pk.Metrics]:
    return in_several_lives(query, pushes, (), [pk.Engine()])


def in_several_lives(
    query: Any, pushes: Sequence[Push], stops: Collection[int], engines: Sequence[pk.Engine]
) -> tuple[list[pa.RecordBatch], pk.Metrics]:
    """Push batches; after those whose numbers are `stops`, go on with the next engine from the state saved."""
    made, life = [], 0
    live = query.open(engine=engines[0])
    for number, (stream, batch) in enumerate(pushes):
        made += live.push({stream: batch})
        if number in stops:
            life += 1
            live = query.open(state=live.state().to_bytes(), engine=engines[life % len(engines)])
    return made + live.finish(), live.metrics
