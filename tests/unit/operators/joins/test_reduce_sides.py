"""Window joins whose sides differ much in size give the pairs of the interpreter, whichever side is reduced."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.operators.joins import window_pairs

LARGE, SMALL = 4_200, 40


def table(rows, seed, kind):
    random = np.random.default_rng(seed)
    keys = [None if key == 7 else int(key) for key in random.integers(0, 60, rows)]
    shown = {"int64": keys, "string": [None if key is None else f"k{key}" for key in keys]}
    shown["float64"] = [None if key is None else [-0.0, 0.0, float("nan")][key % 3] for key in keys]
    return pa.table(
        {
            "ts": pa.array(np.sort(random.integers(0, 9_000, rows)), pa.timestamp("ms")),
            "k": pa.array(shown[kind], kind),
            "v": pa.array(random.integers(0, 9, rows)),
        }
    )


def pairs(left, right, how, window, split):
    streams = [
        pk.stream(name, {f.name: f.type for f in side.schema}, time="ts")
        for name, side in (("a", left), ("b", right))
    ]
    where = pk.left("v") != pk.right("v")
    query = streams[0].join(streams[1], on="k", window=window, how=how, where=where)
    if not split:
        return query.collect(a=left, b=right)
    with query.open() as live:
        made = live.push(a=left.combine_chunks().to_batches()[0], b=right.combine_chunks().to_batches()[0])
        return pa.Table.from_batches(made + live.finish(), query.schema)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("kind", ["int64", "string", "float64"])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("window", [pk.tumbling("20ms"), pk.session("3ms")])
def test_a_reduced_side_gives_the_pairs_of_all_rows(window, how, kind, split, monkeypatch):
    sides = table(LARGE, 1, kind), table(SMALL, 2, kind)
    for left, right in (sides, sides[::-1]):
        found = pairs(left, right, how, window, split)
        monkeypatch.setattr(window_pairs, "LEAST_REDUCED_ROWS", 1 << 40)
        wanted = pairs(left, right, how, window, split)
        monkeypatch.undo()
        if kind == "float64":  # NaN is not equal to itself
            found, wanted = (
                table.set_column(0, "text", table["k"].cast("string")).drop("k") for table in (found, wanted)
            )
        assert found.equals(wanted)
        assert found.num_rows > 0 or how == "anti"


def test_only_sides_whose_lonely_rows_are_dropped_are_reduced():
    from penstock.algorithms.sorted_partitions.rows import Rows
    from penstock.operators.joins.windows import WindowRows

    def rows(count, step):
        batch = pa.record_batch({"k": pa.array(np.arange(count) * step)})
        return Rows(batch, np.arange(count), None, None, np.ones(count, np.bool_))

    large, small = rows(LARGE, 1), rows(SMALL, 100)
    for how, reduced in {
        "inner": (0, 1),
        "semi": (0, 1),
        "left": (1,),
        "anti": (1,),
        "right": (0,),
        "full": (),
    }.items():
        for side in (0, 1):
            sides = (large, small) if side == 0 else (small, large)
            found = window_pairs.reduced_sides(*sides, (("k",), ("k",)), how)
            assert (found[side] is not None) == (side in reduced), (how, side)
            assert found[1 - side] is None
    kept = np.array([0, 100, 200, 300])
    assert window_pairs.run_of(WindowRows(0, 9, (50, 250), (3, 4)), (kept, None)) == WindowRows(
        0, 9, (1, 3), (3, 4)
    )


@pytest.mark.parametrize(
    "others",
    [[5, 9, 9], [-(1 << 63), -(1 << 63) + 4], [(1 << 63) - 3, (1 << 63) - 1], [0, 1 << 62], [None, 3], []],
)
def test_values_that_occur_on_the_other_side_are_found_at_the_ends_of_the_integers(others):
    edges = [
        -(1 << 63),
        -(1 << 63) + 1,
        -1,
        0,
        3,
        4,
        5,
        6,
        9,
        10,
        1 << 62,
        (1 << 63) - 3,
        (1 << 63) - 2,
        (1 << 63) - 1,
    ]
    values = pa.array(others, pa.int64())
    found = window_pairs._occurring(pa.array(edges), values)
    assert found.tolist() == [edge in others for edge in edges]
