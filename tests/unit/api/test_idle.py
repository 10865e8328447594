"""What is silent for too long holds up nobody, and comes back when it has rows: by the clock of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

import penstock as pk
from penstock.api.live import open_live
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, Splits
from penstock.sources.live_files import Clock
from penstock.sources.malformed import Arrived

COLUMNS = pa.schema({"t": pa.int64()})


@dataclass
class Wall:
    """A clock that is moved by hand."""

    time: float = 0.0

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.time, lambda seconds: None)


def rows(*times: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"t": pa.array(times, pa.int64())}, COLUMNS)


@dataclass
class Topic:
    """Splits of a stream: (when, split, times)."""

    script: Sequence[tuple[float, str | None, tuple[int, ...]]]
    wall: Wall = field(default_factory=Wall)
    schema: pa.Schema = COLUMNS
    rows: int | None = None

    @property
    def clock(self) -> Clock:
        return self.wall.clock

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return iter(())

    def arrivals(self, time: str, on_bad: str) -> Iterator[Arrived]:
        for when, split, times in self.script:
            self.wall.time = when
            yield Arrived(rows(*times), split)


def windows(topic: Topic, idle_after: str | None) -> tuple[list[tuple[float, list[int]]], pk.Metrics]:
    """Tell when which windows were given."""
    source = pk.stream("s", COLUMNS, time="t", idle_after=idle_after)
    run = source.window(10).agg(n=pk.count()).run(topic, final=False)
    return [(topic.wall.time, batch["window_end"].to_pylist()) for batch in run], run.metrics


SCRIPT = [
    (0.0, "a", ()),
    (0.0, "b", ()),
    (0.0, "a", (5, 31)),
    (1.0, "b", (7,)),
    (4.0, "a", (45,)),
    (5.0, None, ()),
    (7.0, "b", (8, 44)),
    (8.0, "a", (52,)),
    (8.0, "b", (53,)),
]


def test_a_split_holds_up_the_others_until_it_has_been_silent_for_too_long_and_again_when_it_is_back() -> (
    None
):
    given, metrics = windows(Topic(SCRIPT), "4s")
    assert given == [(5.0, [10, 40]), (8.0, [50])]
    assert (metrics.late, metrics.accepted) == (1, 7)


def test_without_a_limit_it_holds_them_up_for_good() -> None:
    given, metrics = windows(Topic(SCRIPT), None)
    assert given == [(7.0, [10, 40]), (8.0, [50])]
    assert metrics.late == 0


def test_when_all_are_silent_the_last_to_fall_silent_tells_the_time() -> None:
    splits = Splits()
    splits.hear("a", 90, now=5)
    splits.hear("b", 30, now=9)
    splits.hear("c", END_OF_TIME, now=0)
    assert [splits.time(now, 10) for now in (14, 15, 40)] == [30, 30, 30]
    assert [splits.silent(now, 10) for now in (15, 18, 19)] == [False, False, True]
    assert Splits().time(0, None) == START_OF_TIME


def test_a_stream_that_is_silent_follows_the_others_and_holds_them_up_again_when_it_is_back() -> None:
    wall = Wall()
    one, other = (pk.stream(name, COLUMNS, time="t", idle_after="10s") for name in ("one", "other"))
    query = one.union(other).window(10).agg(n=pk.count())
    with open_live(query, None, None, wall.clock) as live:
        assert live.push(one=rows(1, 25)) == []
        wall.time = 9.0
        assert live.push(one=rows(36)) == []
        wall.time = 10.0
        given = live.wait()
        assert [batch["window_end"].to_pylist() for batch in given] == [[10, 30]]
        assert live.push(other=rows(3, 37)) == []
        assert live.metrics.late == 1
        assert live.push(one=rows(70)) == []
        assert [batch["window_end"].to_pylist() for batch in live.push(other=rows(60))] == [[40]]
