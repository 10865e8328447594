"""The C++ reference against a plain Python answer: ordered or not, any threads, groups that sum to zero."""

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.measure import normalise
from benchmarks.reference import WINDOW_US, NoCompilerError, find_compiler, load_reference
from benchmarks.workloads import VIEW, Skew, YsbKeyed, ysb_keyed


@pytest.fixture(scope="module")
def reference():
    try:
        return load_reference()
    except NoCompilerError as error:
        pytest.skip(f"THE C++ REFERENCE IS NOT TESTED: {error}")


def plain_answer(table):
    totals = defaultdict(int)
    rows = zip(
        *(table.column(name).to_pylist() for name in ("campaign_id", "event_type", "value")), strict=True
    )
    times = table.column("ts").cast(pa.int64()).to_pylist()
    for time, (key, kind, value) in zip(times, rows, strict=True):
        if kind == VIEW:
            totals[time // WINDOW_US * WINDOW_US, key] += value
    ordered = sorted(totals)
    stamp = pa.timestamp("us")
    return pa.table(
        {
            "window_start": pa.array([start for start, _ in ordered], pa.int64()).cast(stamp),
            "window_end": pa.array([start + WINDOW_US for start, _ in ordered], pa.int64()).cast(stamp),
            "campaign_id": pa.array([key for _, key in ordered], pa.int64()),
            "total": pa.array([totals[group] for group in ordered], pa.int64()),
        }
    )


def events(times, keys, kinds, values):
    return pa.table(
        {
            "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us")),
            "campaign_id": pa.array(keys, pa.int64()),
            "event_type": pa.array(kinds, pa.int32()),
            "value": pa.array(values, pa.int64()),
        }
    )


def spread(rows, seed, order):
    """Rows over several windows, before and after the epoch, with gaps."""
    random = np.random.default_rng(seed)
    times = random.integers(-4 * WINDOW_US, 4 * WINDOW_US, rows)
    return events(
        np.sort(times) if order else times,
        random.integers(0, 70, rows),
        random.integers(0, 3, rows),
        random.integers(-1_000, 1_000, rows),
    )


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("skew", Skew)
def test_generated_tables_are_answered_exactly(reference, skew, threads):
    table = ysb_keyed(YsbKeyed(rows=30_000, keys=100, skew=skew))
    assert reference.ysb_keyed(table, 100, threads).equals(plain_answer(table))


@pytest.mark.parametrize("rows", [1, 7, 8, 2_047, 2_048, 2_049, 10_001])
@pytest.mark.parametrize("order", [True, False], ids=["ordered", "unordered"])
def test_any_order_and_any_number_of_rows_is_answered_exactly(reference, rows, order):
    table = spread(rows, rows, order)
    assert reference.ysb_keyed(table, 70, 1).equals(plain_answer(table))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_rows_that_fill_many_chunks_are_shared_without_loss(reference, threads):
    rows = 400_000
    table = ysb_keyed(YsbKeyed(rows=rows, keys=7))
    spread_out = table.set_column(0, "ts", pa.array(np.arange(rows) * 101).cast(pa.timestamp("us")))
    expected = reference.ysb_keyed(spread_out, 7, 1)
    assert expected.equals(plain_answer(spread_out))
    assert reference.ysb_keyed(spread_out, 7, threads).equals(expected)


def test_a_group_whose_sum_is_zero_exists_and_one_without_views_does_not(reference):
    table = events([0, 1, 2], [3, 3, 5], [VIEW, VIEW, 0], [4, -4, 9])
    answer = reference.ysb_keyed(table, 10, 1)
    assert answer.select(["campaign_id", "total"]).to_pylist() == [{"campaign_id": 3, "total": 0}]


def test_tables_beyond_the_cache_use_the_prefetching_loop_and_agree(reference):
    table = ysb_keyed(YsbKeyed(rows=50_000, keys=100_000))
    assert reference.ysb_keyed(table, 100_000, 2).equals(plain_answer(table))


def test_no_rows_give_no_groups(reference):
    assert reference.ysb_keyed(events([], [], [], []), 10, 2).num_rows == 0


def test_the_answer_is_ordered_by_window_then_key(reference):
    answer = reference.ysb_keyed(spread(5_000, 1, order=False), 70, 2)
    assert answer.equals(normalise(answer))


def test_memory_bandwidth_is_positive(reference):
    assert reference.read_bandwidth(threads=2, repeat=1) > 0


def test_a_machine_without_a_compiler_gets_an_error_that_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(NoCompilerError, match=r"install g\+\+"):
        find_compiler()


def test_a_compiler_that_fails_is_reported_with_its_message(monkeypatch, tmp_path):
    broken = tmp_path / "broken-c++"
    broken.write_text("#!/bin/sh\necho no such target >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(NoCompilerError, match="no such target"):
        load_reference()
