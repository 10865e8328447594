"""A run that is stopped, saved and taken up again gives what it would have given without."""

from __future__ import annotations

import math
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pk
from tests.custom_aggregates import RMS, SMALLEST
from tests.restarts import ENGINES, in_one_life, in_several_lives

SCHEMA = pa.schema(
    {
        "t": pa.int64(),
        "k": pa.string(),
        "f": pa.float32(),
        "d": pa.dictionary(pa.int8(), pa.string()),
        "n": pa.int32(),
        "v": pa.int64(),
        "x": pa.float64(),
        "tags": pa.list_(pa.string()),
    }
)
EVENTS = pk.stream("events", SCHEMA, time="t", lateness=3)
MORE = pk.stream("more", SCHEMA, time="t", lateness=1)
ORDERED = pk.stream("events", SCHEMA, time="t", lateness=3, sequence="n")

BASICS = {
    "s": pk.sum("v"),
    "rows": pk.count(),
    "c": pk.count("x"),
    "m": pk.mean("x"),
    "w": pk.sum("n", where=pk.col("v") > 0),
}
CHOICES = {
    "least": pk.min("k"),
    "most": pk.max("d"),
    "first": pk.first("v"),
    "last": pk.last("x", ignore_nulls=True),
    "by": pk.max_by("v", "x"),
}
MOMENTS = {"sd": pk.std("x"), "ku": pk.kurtosis("v"), "co": pk.corr("x", "v"), "p": pk.product("n")}
HOLISTIC = {
    "median": pk.median("x"),
    "mode": pk.mode("k"),
    "cd": pk.count_distinct("v"),
    "l": pk.list("tags"),
}

# Queries whose rows come in order of time, those of one time in order of arrival.
IN_ORDER: dict[str, Any] = {
    "a filter and computed columns": EVENTS.filter(pk.col("v") > 0).with_columns(y=pk.col("x") * 2),
    "a look-back over time": EVENTS.rolling(5, by="k").agg(**BASICS),
    "look-backs over rows and time": EVENTS.rolling([pk.rows(2), 4], by="n").with_columns(s=pk.sum("v")),
    "a delayed look-back": EVENTS.rolling(5, delay=3).agg(median=pk.median("x")),
    "a look-back in the order of a sequence": ORDERED.rolling(pk.rows(3)).agg(l=pk.list("v")),
    "distinct for a while": EVENTS.distinct("k", within=4),
    "the last for a while": EVENTS.distinct("k", within=4, keep="last"),
}
WINDOWS: dict[str, Any] = {
    "distinct": EVENTS.distinct(["k", "f"]),
    "distinct in dictionaries": EVENTS.distinct("d"),
    "the last of each value": EVENTS.distinct("n", keep="last"),
    "tumbling windows": EVENTS.window(10).agg(**BASICS),
    "keys of text": EVENTS.window(10, by="k").agg(**BASICS, **CHOICES),
    "keys in dictionaries": EVENTS.window(10, every=5, by="d").agg(**BASICS),
    "keys of numbers": EVENTS.window(8, every=3, by="n").agg(**BASICS, **MOMENTS),
    "keys of floats and texts": EVENTS.window(10, every=2, by=["f", "k"]).agg(**BASICS),
    "computed keys": EVENTS.with_columns(y=pk.col("n") % 2).window(10, by="y").agg(**CHOICES),
    "slides larger than windows": EVENTS.window(3, every=7, by="k").agg(**BASICS),
    "aggregates of one's own": EVENTS.window(9, every=3, by="n").agg(r=RMS("x"), s=SMALLEST("v")),
    "holistic aggregates": EVENTS.window(10, every=4, by="k").agg(**HOLISTIC),
    "rows beside their windows": EVENTS.window(10, every=5, by="k").with_columns(**BASICS),
    "sessions": EVENTS.window(pk.session(2), by="k").agg(**BASICS, **HOLISTIC),
    "counts of rows": EVENTS.window(pk.rows(3, 2), by="n").agg(**BASICS),
    "counts of all rows, and the tail": EVENTS.window(pk.rows(4, partial=True)).agg(r=RMS("x")),
    "all time": EVENTS.window(pk.unbounded(), by="f").agg(**BASICS, **CHOICES),
    "having": EVENTS.window(5, by="k").agg(s=pk.sum("v")).filter(pk.col("s") > 1),
    "windows over windows": EVENTS.window(4, by="k").agg(s=pk.sum("v")).window(12, by="k").agg(m=pk.max("s")),
    "a window carried on": EVENTS.window(4, by="k").agg(s=pk.sum("v")).window().agg(m=pk.max("s")),
    "sessions of windows": (
        EVENTS.window(2, by="k").agg(s=pk.sum("v")).window(pk.session(3), by="k").agg(s=pk.sum("s"))
    ),
    "the largest of each window": EVENTS.window(6, by="k").agg(s=pk.sum("v")).top_k(2, by="s", ties="all"),
    "two streams": EVENTS.union(MORE).window(6, by="k").agg(**BASICS),
    "sessions of two streams": EVENTS.union(MORE).window(pk.session(2)).agg(l=pk.list("v")),
    "two streams side by side": (
        EVENTS.filter(pk.col("v") > 0).union(EVENTS.filter(pk.col("n") > 1), MORE).window(5).agg(n=pk.count())
    ),
    "a function of each window": EVENTS.window(5, by="k").apply(
        lambda rows: rows.select(["v"]), {"v": "int64"}
    ),
}
QUERIES = IN_ORDER | WINDOWS
CALENDAR = (
    pk.stream("events", {"t": "timestamp[s]", "k": "string", "v": "int64"}, time="t", lateness="1d")
    .window(pk.sliding("1mo", "1d", tz="Europe/Berlin"), by="k")
    .agg(s=pk.sum("v"), n=pk.count())
)

VALUES: dict[str, list[Any]] = {
    "k": ["a", "b", "", "long enough to be no short text", None],
    "f": [0.0, -0.0, 1.5, math.nan, None],
    "d": ["x", "y", None],
    "n": [0, 1, 2, 3, None],
    "v": [1, 2, 7, -3, 2**57, -(2**57), None],
    "x": [0.5, -1.25, 3.0, None],
    "tags": [[], ["a", None], None],
}


@st.composite
def pushes(draw: st.DrawFn, streams: tuple[str, ...], most: int = 6) -> list[tuple[str, pa.RecordBatch]]:
    """Draw batches of rows that drift through time, some of them late; nulls come late, or never."""
    found, clean = [], draw(st.integers(0, most + 1))
    for number in range(draw(st.integers(1, most))):
        size = draw(st.integers(0, 8))
        columns = {
            name: [draw(st.sampled_from([v for v in values if v is not None or number >= clean]))
                   for _ in range(size)]
            for name, values in VALUES.items()
        }  # fmt: skip
        columns["t"] = [4 * number + draw(st.integers(-6, 6)) for _ in range(size)]
        batch = pa.RecordBatch.from_pydict(columns, schema=SCHEMA)
        found.append((draw(st.sampled_from(streams)), batch))
    return found


def cells(batches: list[pa.RecordBatch]) -> list[str]:
    """Write rows down so that they can be compared: floats to nine digits, since threads add in any order."""
    return [
        repr({name: _cell(value) for name, value in row.items()})
        for batch in batches
        for row in batch.to_pylist()
    ]


def _cell(value: object) -> object:
    return f"{value + 0.0:.9g}" if isinstance(value, float) else value


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=8)
@given(data=st.data())
def test_a_run_stopped_anywhere_and_taken_up_by_any_engine_gives_what_it_would_have(
    name: str, data: st.DataObject
) -> None:
    query = QUERIES[name]
    rows = data.draw(pushes(query.names))
    wanted, counted = in_one_life(query, rows)
    stops = data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1))
    engines = data.draw(st.lists(st.sampled_from(sorted(ENGINES)), min_size=2, max_size=3))
    found, counted_again = in_several_lives(query, rows, stops, [ENGINES[engine] for engine in engines])
    order = list if name in IN_ORDER else sorted
    assert order(cells(found)) == order(cells(wanted))
    assert counted_again == counted


@pytest.mark.parametrize("name", QUERIES)
def test_what_is_saved_is_what_was_loaded(name: str) -> None:
    query = QUERIES[name]
    live = query.open()
    live.push({query.names[0]: SAMPLE})
    state = live.state()
    for engine in ENGINES.values():
        assert query.open(state=state, engine=engine).state() == state


SAMPLE = pa.RecordBatch.from_pydict(
    {
        "t": [1, 7, 3, 12, 9, 9, 14],
        "k": ["a", "b", None, "a", "", "a", "b"],
        "f": [0.0, -0.0, math.nan, 1.5, None, 1.5, 0.0],
        "d": ["x", "y", "x", None, "y", "x", "x"],
        "n": [3, 1, 2, None, 1, 0, 2],
        "v": [1, 2, 2**60, 2**60, -5, None, 2**60],
        "x": [0.5, 2.25, -1.0, 3.0, None, 0.25, 1.0],
        "tags": [["a"], None, [], ["b", "c"], [None], ["a"], []],
    },
    schema=SCHEMA,
)


def test_calendar_windows_go_on_across_a_change_of_the_clock() -> None:
    day = 86_400
    first = 1_774_000_000  # 20 March 2026; clocks change on the 29th
    rows = [
        ("events", pa.record_batch([
            pa.array([first + day * (3 * number + shift) for shift in (0, 2, 1)], pa.timestamp("s")),
            pa.array(["a", "b", "a"]), pa.array([number, 1, 2], pa.int64()),
        ], names=["t", "k", "v"]))
        for number in range(8)
    ]  # fmt: skip
    wanted, counted = in_one_life(CALENDAR, rows)
    found, counted_again = in_several_lives(CALENDAR, rows, range(8), [pk.Engine()])
    assert sorted(cells(found)) == sorted(cells(wanted))
    assert counted_again == counted


def test_implied_times_go_on_counting() -> None:
    samples = pk.stream("ecg", {"v": "int64"}, time=pk.every("4ms"))
    query = samples.window("20ms").agg(s=pk.sum("v"), first=pk.first("v"))
    rows = [("ecg", pa.record_batch({"v": [number, number + 1, 5]})) for number in range(7)]
    wanted, _ = in_one_life(query, rows)
    found, _ = in_several_lives(query, rows, range(7), [pk.Engine()])
    assert cells(found) == cells(wanted)


def test_a_sum_goes_on_beyond_64_bits_and_back() -> None:
    query = pk.stream("events", {"t": "int64", "v": "int64"}, time="t").window(10).agg(s=pk.sum("v"))
    big = 2**63 - 1
    rows = [("events", pa.record_batch({"t": [1], "v": [v]})) for v in (big, big, big, -big, -big, -7)]
    found, _ = in_several_lives(query, rows, range(6), [pk.Engine()])
    assert found[0]["s"].to_pylist() == [big - 7]


def test_a_watermark_moved_by_hand_is_remembered() -> None:
    query = EVENTS.window(10).agg(n=pk.count())
    live = query.open()
    live.push(SAMPLE)
    live.advance(30)
    live = query.open(state=live.state())
    live.push(SAMPLE)
    assert live.metrics.late == SAMPLE.num_rows


# --- files ------------------------------------------------------------------------------------------------------

TOTALS = pk.stream("events", {"t": "int64", "v": "int64"}, time="t").window(10).agg(s=pk.sum("v"))


def batch(*times: int) -> pa.RecordBatch:
    return pa.record_batch({"t": pa.array(times, pa.int64()), "v": pa.array(times, pa.int64())})


def test_a_live_query_is_saved_to_a_file_and_opened_from_it(tmp_path: Path) -> None:
    path = tmp_path / "totals.state"
    with TOTALS.open() as live:
        live.push(batch(1, 2))
        live.save(path)
        assert live.push(batch(3, 10))[0]["s"].to_pylist() == [6], "it goes on undisturbed"
    for state in (path, str(path), path.read_bytes(), pk.State.load(path)):
        assert TOTALS.open(state=state).push(batch(5, 10))[0]["s"].to_pylist() == [8]


def test_a_run_goes_on_from_a_file_and_is_saved_to_it_again(tmp_path: Path) -> None:
    path = tmp_path / "totals.state"
    first = TOTALS.run([batch(1, 2), batch(3, 11)], final=False)
    assert [table["s"].to_pylist() for table in first] == [[6]]
    first.save(path)
    second = TOTALS.run([batch(12, 30)], state=path, final=False)
    assert [table["s"].to_pylist() for table in second] == [[23]]
    second.save(path)
    assert [table["s"].to_pylist() for table in TOTALS.run([batch(31)], state=path)] == [[61]]


def test_a_file_can_be_read_by_its_owner_alone_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "totals.state"
    for _ in range(2):
        TOTALS.open().save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["totals.state"]


def test_a_save_that_fails_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "totals.state"
    TOTALS.open().save(path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(pk.StateError, match=r"cannot save the state to .*No space left"):
        TOTALS.open().save(path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


# --- what is refused --------------------------------------------------------------------------------------------


def other(schema: dict[str, str] | None = None, size: int = 10, lateness: int = 0) -> Any:
    events = pk.stream("events", schema or {"t": "int64", "v": "int64"}, time="t", lateness=lateness)
    return events.window(size).agg(s=pk.sum("v"))


OTHERS = {
    "another window": (other(size=20), r"the window of ~\w+ was size 10 every 10 and is size 20 every 20"),
    "another type": (
        other({"t": "int64", "v": "float64"}),
        r"types s: int64 and now has s: double; .*\(stream 'events'\) had the columns v: int64 and now has v: double",
    ),
    "another filter": (TOTALS.filter(pk.col("s") > 3), r"the having of ~\w+ was none and is sum\(v\) > \?"),
    "another stream": (
        pk.stream("clicks", {"t": "int64", "v": "int64"}, time="t").window(10).agg(s=pk.sum("v")),
        "stream 'clicks'",
    ),
}


@pytest.mark.parametrize(("query", "says"), OTHERS.values(), ids=OTHERS.keys())
def test_the_state_of_another_query_is_refused_with_what_differs(query: Any, says: str) -> None:
    with pytest.raises(pk.StateError, match=f"saved by another query: .*{says}"):
        query.open(state=TOTALS.open().state())


def test_the_same_query_written_anew_takes_the_state() -> None:
    live = other().open()
    live.push(batch(1))
    again = other({"t": "int64", "v": "int64", "unread": "string"}, lateness=5)
    assert cells(again.open(state=live.state()).finish()) == cells(live.finish())


def test_a_run_that_has_finished_has_nothing_to_save() -> None:
    live = TOTALS.open()
    live.finish()
    with pytest.raises(pk.StateError, match="finished"):
        live.state()


def test_results_that_nobody_has_taken_are_not_lost_by_saving() -> None:
    sliding = pk.stream("events", {"t": "int64", "v": "int64"}, time="t").window(10, every=5)
    run = sliding.agg(s=pk.sum("v")).run([batch(2, 12, 7, 30)], final=False)
    next(run)  # what was complete when 7 came; what 30 has completed is still to be taken
    with pytest.raises(pk.StateError, match="1 batches of results have not been taken"):
        run.state()
    assert next(run)["s"].to_pylist() == [19, 12]
    run.state()


def test_after_a_push_that_failed_halfway_there_is_nothing_whole_to_save() -> None:
    query = pk.stream("events", {"t": "int64", "v": "int64"}, time="t").with_columns(y=pk.col("v") * 3)
    live = query.open()
    with pytest.raises(pk.OverflowError):
        live.push(pa.record_batch({"t": [1], "v": [2**62]}))
    with pytest.raises(pk.StateError, match="failed halfway"):
        live.state()
