"""Arrival time: rows are stamped when they come, by a clock that tests move."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.api.background import Background
from penstock.api.live import open_live
from penstock.sources.live_files import Clock

MS = 1_000_000


class Wall:
    """A clock that is moved by hand, in milliseconds."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now * MS


def clicks(wall: Any, **options: Any) -> pk.Stream:
    return pk.stream("clicks", {"v": "int64"}, time=pk.arrival("ms", clock=wall), **options)


def counts(wall: Wall) -> pk.Stream:
    return clicks(wall).window("10ms").agg(n=pk.count(), s=pk.sum("v"))


def reported(batches: Any) -> list[tuple[int, int]]:
    return [
        (row["window_end"].timestamp() * 1000, row["n"]) for batch in batches for row in batch.to_pylist()
    ]


def test_rows_of_one_push_have_the_time_of_the_push() -> None:
    wall = Wall(5)
    with clicks(wall).open() as live:
        (first,) = live.push([{"v": 1}, {"v": 2}])
        wall.now = 7
        (second,) = live.push(pa.record_batch({"v": [3]}))
    assert first.schema.field("time").type == pa.timestamp("ms", "UTC")
    assert [first["time"].cast("int64").to_pylist(), second["time"].cast("int64").to_pylist()] == [
        [5, 5],
        [7],
    ]


def test_windows_close_by_the_clock() -> None:
    wall = Wall(3)
    with counts(wall).open() as live:
        assert live.push({"v": 1}) == []
        wall.now = 9
        assert live.wait() == []
        wall.now = 10
        assert reported(live.wait()) == [(10, 1)]
        wall.now = 25
        assert live.push({"v": 2}) == []
        wall.now = 31
        assert reported(live.push({"v": 3})) == [(30, 1)]
        assert reported(live.finish()) == [(40, 1)]
    assert live.metrics.late == 0


def test_a_clock_that_goes_back_makes_no_row_late() -> None:
    wall = Wall(25)
    with counts(wall).open() as live:
        live.push({"v": 1})
        wall.now = 3
        live.push({"v": 2})
        wall.now = 26
        assert reported(live.push({"v": 3}) + live.finish()) == [(30, 3)]
        assert live.metrics.late == 0


def test_a_restart_goes_on_from_the_saved_time_even_if_the_clock_is_behind() -> None:
    wall = Wall(25)
    with counts(wall).open() as live:
        live.push({"v": 1})
        state = live.state()
    wall.now = 2
    with counts(wall).open(state=state) as live:
        assert reported(live.push({"v": 2}) + live.finish()) == [(30, 2)]
        assert live.metrics.late == 0


def test_a_writer_and_sql_take_arrival_times() -> None:
    wall = Wall(4)
    events = clicks(wall)
    query = pk.sql(
        "select sum(v) as s from clicks [range 10 milliseconds slide 10 milliseconds]", clicks=events
    )
    with query.open() as live:
        writer = live.writer(2)
        assert list(writer) == ["v"]
        writer["v"][:] = [1, 2]
        writer.commit()
        wall.now = 12
        made = live.wait()
    assert [batch["s"].to_pylist() for batch in made] == [[3]]


@pytest.mark.parametrize("door", ["push", "writer"])
def test_in_the_background_rows_have_the_time_of_their_push_and_time_alone_closes_windows(door: str) -> None:
    wall, given = Wall(3), [0.0]
    live = open_live(counts(wall), None, None, Clock(lambda: given[0], lambda seconds: None))
    run = Background(live, 0.0, 1 << 20, None)
    writer = run.writer(1)
    writer["v"][:] = 1
    for now in (3, 12, 13):
        wall.now = now
        if door == "push":
            run.push({"v": 1})
        else:
            writer.commit()
    assert reported([next(run)]) == [(10, 1)]
    wall.now = 20
    assert reported([next(run)]) == [(20, 2)]
    run.close()
    assert run.metrics.late == 0


def test_rows_of_several_threads_are_never_late_in_the_background() -> None:
    from threading import Thread

    query = pk.stream("clicks", {"v": "int64"}, time=pk.arrival("ns")).window("1us").agg(n=pk.count())
    live = query.open(background=True, max_delay="0s")

    def work() -> None:
        for _ in range(200):
            live.push({"v": 1})

    threads = [Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    live.finish()
    assert sum(n for batch in live for n in batch["n"].to_pylist()) == 600
    assert live.metrics.late == 0


def test_rows_behind_a_queued_call_are_not_late_however_late_the_call_runs() -> None:
    wall = Wall(3)
    run = counts(wall).open(background=True, max_delay="1h")
    with run._worker.lock:  # no task begins before all is queued
        run.push({"v": 1})
        run._call(lambda: run._live.advance(datetime.fromtimestamp(0.004, UTC)))
        wall.now = 7
        run._put([("clicks", pa.record_batch({"v": [1]}))], 0.0)
        wall.now = 55
    run.finish()
    assert reported(run) == [(10, 2)]
    assert run.metrics.late == 0


def test_runs_stamp_batches_as_they_are_read() -> None:
    wall = Wall()

    def feed() -> Any:
        for now in (1, 5, 12):
            wall.now = now
            yield {"v": now}

    assert reported(counts(wall).run(feed())) == [(10, 2), (20, 1)]


def test_a_join_takes_arrival_times() -> None:
    wall = Wall(1)
    one, other = (
        pk.stream(name, {"k": "int64"}, time=pk.arrival("ms", clock=wall)) for name in ("one", "other")
    )
    with one.join(other, on="k", window=pk.tumbling("10ms")).open() as live:
        live.push(one={"k": 1}, other={"k": 1})
        wall.now = 10
        assert [batch.num_rows for batch in live.wait()] == [1]


MISTAKES = [
    (pk.UnsupportedError, "no time of arrival", lambda: pk.from_arrow({"v": [1]}, time=pk.arrival())),
    (pk.UnsupportedError, "collect reads rows", lambda: counts(Wall()).collect({"v": [1]})),
    (pk.UnsupportedError, "run over data", lambda: counts(Wall()).run(pa.table({"v": [1]}))),
    (
        pk.SchemaMismatchError,
        "adds a column 'time'",
        lambda: pk.stream("s", {"time": "int64"}, time=pk.arrival()),
    ),
    (pk.DurationError, "unit='h'", lambda: pk.arrival("h")),
    (pk.ExpressionTypeError, "clock is 3", lambda: pk.arrival(clock=3)),  # type: ignore[arg-type]
    (pk.DurationError, "leave out lateness=", lambda: clicks(Wall(), lateness="1s")),
    (pk.DurationError, "leave out lateness=", lambda: clicks(Wall(), idle_after="1s")),
    (pk.DurationError, "leave out lateness=", lambda: clicks(Wall(), late_to="x")),
    (pk.DurationError, "unit= is for integer", lambda: clicks(Wall(), unit="ms")),
    (
        pk.BindingError,
        r"no stream 'w'.*columns of it need \['v'\]",
        lambda: counts(Wall()).open().push({"w": 1}),
    ),
    (pk.SchemaMismatchError, "no column 'v'", lambda: counts(Wall()).open().push([{"w": 1}])),
    (
        pk.UnsupportedError,
        "without|no safe form|cannot be written",
        lambda: clicks(Wall()).to_json(),
    ),
]


@pytest.mark.parametrize(("error", "says", "mistake"), MISTAKES, ids=[says for _, says, _ in MISTAKES])
def test_where_arrival_has_no_meaning_it_is_refused(error: type[Exception], says: str, mistake: Any) -> None:
    with pytest.raises(error, match=says):
        mistake()


def test_a_given_time_column_is_a_further_column_that_is_left_out() -> None:
    with clicks(Wall(7)).open() as live:
        (batch,) = live.push({"v": np.array([1]), "time": np.array([99])})
    assert batch["time"].cast("int64").to_pylist() == [7]
