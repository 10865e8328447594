"""Views of a batch are kept while it lives; nothing derived from its values is."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pyarrow as pa

import penstock as pk
from penstock.algorithms.kernel_factory import BatchArguments
from penstock.runtime import buffers
from penstock.runtime.buffers import views_of


def test_views_of_a_batch_are_made_once_and_let_go_with_it() -> None:
    batch = pa.record_batch({"v": pa.array([1, 2, 3])})
    place = id(batch)
    values = BatchArguments(batch, {}).values("v")
    assert BatchArguments(batch, {}).values("v") is values
    assert values.tolist() == [1, 2, 3]
    del batch, values
    gc.collect()
    assert place not in buffers._VIEWS


def test_a_batch_in_the_place_of_another_is_not_taken_for_it() -> None:
    for number in range(100):
        batch = pa.record_batch({"v": pa.array([number])})
        assert BatchArguments(batch, {}).values("v").tolist() == [number]


def test_keys_written_over_between_two_runs_are_found() -> None:
    """Where an array came from NumPy without a copy, its maker may write to it: the range that was seen before is no promise."""
    keys = np.arange(1000) % 10
    table = pa.table(
        {"t": np.arange(1000), "k": pa.Array.from_buffers(pa.int64(), 1000, [None, pa.py_buffer(keys)])}
    )
    query = (
        pk.from_arrow(table, time="t")
        .filter(pk.col("t") >= 0)
        .window(pk.tumbling(1000), by="k")
        .agg(n=pk.count())
    )
    assert query.collect()["k"].to_pylist() == list(range(10))
    keys[:] = np.arange(1000) % 7 - 5_000
    assert query.collect()["k"].to_pylist() == list(range(-5_000, -4_993))
    keys[500:] = 1 << 40
    assert set(query.collect()["k"].to_pylist()) == {*range(-5_000, -4_993), 1 << 40}


def test_no_python_runs_when_a_batch_is_let_go_in_which_an_interrupt_could_be_lost() -> None:
    batch = pa.record_batch({"v": [1]})
    views_of(batch)
    ran: list[str] = []
    sys.setprofile(lambda frame, event, _: ran.append(frame.f_code.co_name) if event == "call" else None)
    try:
        del batch
    finally:
        sys.setprofile(None)
    assert ran == []
