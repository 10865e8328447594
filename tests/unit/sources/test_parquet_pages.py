"""Times of pages that lie in one pane are not read, and nobody can tell."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.sources import prefetch, time_pruning
from penstock.sources.fragment import Fragment
from penstock.sources.time_pruning import pages_of, values_of
from penstock.types.windows import Steps

ROWS, PAGE = 6_000, 500
RANDOM = np.random.default_rng(5)


def events(times: np.ndarray | pa.Array) -> pa.Table:
    return pa.table({"t": times, "k": RANDOM.integers(0, 5, ROWS), "v": RANDOM.integers(0, 9, ROWS)})


def written(folder: Path, table: pa.Table, **options: Any) -> Path:
    """Write row groups of 3,000 rows in pages of 500, in a folder of their own."""
    path = folder / "a.parquet"
    given = {"row_group_size": 3_000, "max_rows_per_page": PAGE, "write_batch_size": 100, **options}
    pq.write_table(table, path, **given)
    return path


@pytest.fixture(autouse=True)
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages of small row groups be asked too."""
    monkeypatch.setattr(time_pruning, "WORTH_ALONE", 1)


FORMS = [
    {"data_page_version": version, "compression": codec, "use_dictionary": dictionary}
    for version, codec, dictionary in product(
        ("1.0", "2.0"), ("none", "snappy", "zstd", "gzip"), (False, True)
    )
]
NULLS = pa.array([None if number % 7 == 0 else number for number in range(ROWS)], pa.int64())
TIMES = {
    "in order": np.arange(ROWS),
    "far apart": np.arange(ROWS) * 1_000,
    "backwards": np.arange(ROWS)[::-1].copy(),
    "before 1970": np.arange(ROWS) - 3_333,
    "in no order": RANDOM.integers(0, ROWS, ROWS),
    "timestamps": pa.array(np.arange(ROWS), pa.timestamp("us")),
    "milliseconds": pa.array(np.arange(ROWS), pa.timestamp("ms")),
    "32 bits": np.arange(ROWS, dtype=np.int32),
    "nulls": NULLS,
}
UNITS = {"timestamps": "us", "milliseconds": "ms"}


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_pages_tell_the_times_of_every_form(tmp_path: Path, form: dict[str, Any]) -> None:
    table = events(TIMES["in order"])
    answer = _answer(pk.from_arrow(table, time="t", name="events"))
    assert _answer(pk.scan(written(tmp_path, table, **form), time="t", name="events")) == answer


@pytest.mark.parametrize("name", TIMES)
def test_files_give_the_answer_of_a_table(tmp_path: Path, name: str) -> None:
    table = events(TIMES[name])
    unit = UNITS.get(name)
    answer = _answer(pk.from_arrow(table, time="t", name="events", on_bad="drop"), unit)
    scan = pk.scan(written(tmp_path, table), time="t", name="events", on_bad="drop")
    assert _answer(scan, unit) == answer


def _answer(stream: Any, unit: str | None = None) -> pa.Table:
    size, every = (number if unit is None else f"{number}{unit}" for number in (5_400, 2_700))
    made = stream.window(size, every=every, by="k").agg(n=pk.count(), s=pk.sum("v")).collect()
    return made.sort_by([(name, "ascending") for name in ("window_start", "k")])


def test_times_are_left_in_the_file_but_for_pages_across_a_border(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, events(TIMES["in order"]), use_dictionary=False)
    asked: list[list[str]] = []
    read: list[int] = []
    one, page = prefetch.decode, time_pruning.values_of

    def noted(*args: Any) -> Any:
        asked.append(args[3])
        return one(*args)

    def noted_page(path: str, found: Any) -> Any:
        read.append(found.low)
        return page(path, found)

    monkeypatch.setattr(prefetch, "decode", noted)
    monkeypatch.setattr(time_pruning, "values_of", noted_page)
    pk.scan(path, time="t", name="events").window(2_700, by="k").agg(s=pk.sum("v")).collect()
    assert {tuple(value) for value in asked} == {("k", "v")}
    assert read == [2_500, 5_000]


def test_a_latest_time_that_is_made_up_is_one_that_a_row_has(tmp_path: Path) -> None:
    path = written(tmp_path, events(TIMES["in order"]))
    metadata = pq.read_metadata(path)
    fragment = Fragment(str(path), "parquet", (0, 1), 3_000)
    schema = pq.read_schema(path)
    batches = list(prefetch.read(fragment, schema, ["t", "k"], steps=Steps("t", 2_700, 0)))
    times = np.concatenate([batch.column("t").to_numpy() for batch in batches])
    true = np.arange(metadata.row_group(0).num_rows)
    assert times.max() == true.max()
    assert (times // 2_700 == true // 2_700).all()
    assert (times != true).any()


def test_row_groups_whose_pages_mostly_lie_across_borders_are_decoded_as_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, events(TIMES["in order"]))
    asked: list[list[str]] = []
    one = prefetch.decode

    def noted(*args: Any) -> Any:
        asked.append(args[3])
        return one(*args)

    monkeypatch.setattr(prefetch, "decode", noted)
    pk.scan(path, time="t", name="events").window(PAGE // 3, by="k").agg(s=pk.sum("v")).collect()
    assert {tuple(value) for value in asked} == {("t", "k", "v")}


def test_a_page_gives_its_values(tmp_path: Path) -> None:
    path = written(tmp_path, events(TIMES["in order"]), use_dictionary=False)
    found = pages_of(str(path), pq.read_metadata(path).row_group(1), 0)
    assert found is not None
    assert [(page.rows, page.low, page.high) for page in found] == [
        (PAGE, begin, begin + PAGE - 1) for begin in range(3_000, ROWS, PAGE)
    ]
    values = values_of(str(path), found[2])
    assert values is not None
    assert values.tolist() == list(range(4_000, 4_500))


def test_headers_that_are_damaged_tell_nothing_or_what_is_there(tmp_path: Path) -> None:
    """A column that headers do not tell of is read by those who know all of the format, or refused."""
    path = written(tmp_path, events(TIMES["in order"]), use_dictionary=False)
    metadata, whole = pq.read_metadata(path), path.read_bytes()
    begin = metadata.row_group(0).column(0).data_page_offset
    damaged = tmp_path / "damaged.parquet"
    for place in range(begin, begin + 80):
        for bit in (0, 3, 7):
            changed = bytearray(whole)
            changed[place] ^= 1 << bit
            damaged.write_bytes(changed)
            for page in pages_of(str(damaged), metadata.row_group(0), 0) or ():
                values = values_of(str(damaged), page)
                assert values is None or len(values) == page.rows


@pytest.mark.parametrize("cut", [0, 3, 40, 3_000])
def test_files_that_are_cut_short_tell_nothing(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path, events(TIMES["in order"]))
    metadata = pq.read_metadata(path)
    path.write_bytes(path.read_bytes()[: metadata.row_group(0).column(0).data_page_offset + cut])
    assert pages_of(str(path), metadata.row_group(0), 0) is None
