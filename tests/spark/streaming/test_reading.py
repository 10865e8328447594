"""Tasks that fold rows leave times in the file where all of a row group lie in one pane, and nobody can tell."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.sources import prefetch
from penstock.sources.live_files import LiveFiles
from penstock.sources.malformed import Bad
from penstock.spark.exchange import ShufflePayload, unpacked
from penstock.spark.known_plans import PLANS
from penstock.spark.streaming.files import FileReader, offset
from penstock.spark.streaming.frame import wired
from penstock.spark.streaming.shuffle_write import MARK, Mark, Scatter
from penstock.spark.streaming.topology import way_of
from penstock.types.windows import Steps
from tests.oracle.effort import effort

SCHEMA = pa.schema({"t": pa.int64(), "k": pa.int64(), "v": pa.int64()})


def scattered(folder: str, aggregate: Any, on_bad: str = "drop") -> tuple[Scatter, LiveFiles]:
    """Divide a query over a folder among two shards."""
    events = pk.scan_stream(
        folder, time="t", name="events", on_bad=on_bad, schema=SCHEMA, format="parquet"
    ).filter(pk.col("v") >= 0)
    compiled = events.window(pk.sliding(10, 4), by="k").agg(s=aggregate).compiled()
    scatter, _ = wired(compiled, 2, frozenset(), way_of(compiled))
    return scatter, LiveFiles(folder, "parquet", SCHEMA)


def sent(scatter: Scatter, files: LiveFiles, steps: Steps | None) -> list[ShufflePayload]:
    """Read all files that are there, and give what tasks send."""
    reader = FileReader(scatter, "events", files, 2, None, steps)
    there = [value.path for value in files.listed()]
    tasks = reader.partitions(reader.initialOffset(), offset(there))
    payloads = (payload for task in tasks for payload in unpacked(reader.read(task)))
    return [payload for payload in payloads if payload.name != PLANS]  # which count the rows of earlier reads


@effort(40)
@given(
    st.lists(st.tuples(st.none() | st.integers(-40, 40), st.integers(0, 3), st.integers(-2, 9)), max_size=30),
    st.integers(1, 6),
    st.booleans(),
    st.booleans(),
)
def test_what_shards_are_sent_is_the_same(
    rows: list[tuple[int | None, int, int]], group: int, ordered: bool, statistics: bool
) -> None:
    if ordered:
        rows = sorted(rows, key=lambda row: (row[0] is None, row[0] or 0))
    table = pa.table(
        {name: pa.array([row[place] for row in rows], pa.int64()) for place, name in enumerate("tkv")}
    )
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(table, Path(folder, "a.parquet"), row_group_size=group, write_statistics=statistics)
        scatter, files = scattered(folder, pk.sum("v"))
        steps = scatter.steps("events")
        assert steps == Steps("t", 2, 0)
        assert sent(scatter, files, steps) == sent(scatter, files, None)


@pytest.mark.parametrize(
    ("aggregate", "read"), [(pk.sum("v"), [["k", "v"]]), (pk.last("v"), [["t", "k", "v"]])]
)
def test_times_of_one_pane_stay_in_the_file_and_the_latest_is_told_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aggregate: Any, read: list[list[str]]
) -> None:
    pq.write_table(pa.table({"t": [20, 21, 21, 20], "k": [1] * 4, "v": [1] * 4}), tmp_path / "a.parquet")
    asked: list[list[str]] = []
    one = prefetch.decode

    def noted(path: str, metadata: Any, numbers: list[int], columns: list[str], *rest: Any) -> Any:
        asked.append(sorted(columns))
        return one(path, metadata, numbers, columns, *rest)

    monkeypatch.setattr("penstock.sources.prefetch.decode", noted)
    scatter, files = scattered(str(tmp_path), aggregate)
    payloads = sent(scatter, files, scatter.steps("events"))
    assert asked == [sorted(columns) for columns in read]
    marks = [Mark.decoded(payload.payload) for payload in payloads if payload.name.startswith(MARK)]
    assert {mark.latest for mark in marks} == {21}


def test_rows_that_travel_keep_their_times(tmp_path: Path) -> None:
    scatter, _ = scattered(str(tmp_path), pk.median("v"))
    assert scatter.fold is None
    assert scatter.steps("events") is None


@pytest.mark.parametrize("on_bad", ["drop", "fail"])
def test_a_line_is_no_row_even_if_the_query_does_not_read_what_is_wrong_with_it(
    tmp_path: Path, on_bad: str
) -> None:
    lines = ['{"t": 1, "k": 1, "v": 1}', '{"t": 2, "k": 1, "v": "x"}', '{"t": 3, "k": 1, "v": 2}']
    (tmp_path / "a.json").write_text("\n".join(lines))
    declared = pk.scan_stream(
        str(tmp_path), time="t", name="events", on_bad=on_bad, schema=SCHEMA, format="json"
    )
    compiled = declared.window(10, by="k").agg(n=pk.count()).compiled()
    scatter, _ = wired(compiled, 2, frozenset(), way_of(compiled))
    assert "v" not in scatter.columns("events")
    files = LiveFiles(str(tmp_path), "json", SCHEMA)
    if on_bad == "fail":
        with pytest.raises(pk.PenstockError, match=r"a\.json"):
            sent(scatter, files, None)
        return
    reader = FileReader(scatter, "events", files, 1, None)
    bad: list[Bad] = []
    (task,) = reader.partitions(reader.initialOffset(), offset([value.path for value in files.listed()]))
    assert [t for batch in reader.rows(task, bad) for t in batch["t"].to_pylist()] == [1, 3]
    assert [record.offset for record in bad] == [1]
