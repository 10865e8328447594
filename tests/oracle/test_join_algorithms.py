"""All eight join algorithms = each other = plain Python = DuckDB, on windows of several thousand rows and real threads."""

from __future__ import annotations

from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle.effort import effort
from tests.unit.algorithms.joins.kernels.joining import EAGER, LAZY, eagerly, native

ROWS, EQUAL, FLOOD = 1500, 300, 20_000


def zipf(rng: np.random.Generator, rows: int, skew: float) -> np.ndarray:
    """Keys whose frequency falls as 1 / rank^skew."""
    weights = 1.0 / np.arange(1, 1001) ** skew
    return rng.choice(1000, rows, p=weights / weights.sum())


@st.composite
def windows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Two columns of codes: duplicates 1 … 1000, Zipf keys, floods of one side, empty ones, all keys equal."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    sides = []
    for _ in range(2):
        rows = draw(st.sampled_from([0, 1, 17, ROWS, ROWS, FLOOD]))
        kind = draw(st.sampled_from(["duplicates", "zipf", "equal"])) if rows < FLOOD else "flood"
        if kind == "zipf":
            side = zipf(rng, rows, draw(st.sampled_from([0.4, 1.0, 1.6])))
        elif kind == "equal":
            side = np.zeros(min(rows, EQUAL))
        else:
            most = 10 if kind == "flood" else 1000
            side = rng.permutation(np.arange(rows) // draw(st.sampled_from([1, 2, 10, most])))
        sides.append(side.astype(np.int64))
    spread = draw(st.sampled_from([1, 1, 1_000_003, 0x9E3779B97F4A7C15 - (1 << 64)]))
    with np.errstate(over="ignore"):
        return sides[0] * np.int64(spread), sides[1] * np.int64(spread)


def counted(left: np.ndarray, right: np.ndarray) -> int:
    mine, theirs = Counter(left.tolist()), Counter(right.tolist())
    return sum(count * theirs[code] for code, count in mine.items())


def by_duckdb(left: np.ndarray, right: np.ndarray) -> tuple[int, int]:
    """How many pairs there are, and a sum over them that no other set of pairs is likely to have."""
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, side in (("l", left), ("r", right)):
            connection.register(name, pa.table({"k": side, "row": np.arange(len(side))}))
        asked = "select count(*), sum((l.row * 31 + 7) * (r.row * 17 + 3)) from l join r using (k)"
        count, total = connection.execute(asked).fetchall()[0]
    return int(count), int(total or 0)


def summed(pairs: tuple[np.ndarray, np.ndarray]) -> tuple[int, int]:
    left, right = pairs
    return len(left), int(((left * 31 + 7) * (right * 17 + 3)).sum())


@given(windows(), st.integers(1, 3))
@effort(12)
def test_all_algorithms_agree(sides, threads) -> None:
    left, right = sides
    want = by_duckdb(left, right)
    assert want[0] == counted(left, right)
    for name in LAZY:
        joiner = LAZY[name](native)
        assert joiner.join(left, right, "count", threads) == want[0], name
        assert summed(joiner.join(left, right, "pairs", threads)) == want, name
    for name in EAGER:
        assert eager_sums(name, left, right, threads) == want, name


def eager_sums(name: str, left: np.ndarray, right: np.ndarray, threads: int) -> tuple[int, int]:
    run, found = EAGER[name](native).open(threads), []
    for at in range(0, max(len(left), len(right)), 5000):
        found += [run.push_left(left[at : at + 5000]), run.push_right(right[at : at + 5000])]
    found.append(run.close())
    return tuple(map(sum, zip(*map(summed, found), strict=True)))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_find_the_same_in_a_window_of_many_rows(threads) -> None:
    rng = np.random.default_rng(threads)
    left, right = rng.integers(0, 60_000, 120_000), rng.integers(0, 60_000, 90_000)
    scattered = [side * np.int64(0x5851F42D4C957F2D) for side in (left, right)]
    want = counted(left, right)
    for a, b in ((left, right), scattered):
        for name in LAZY:
            assert LAZY[name](native).join(a, b, "count", threads) == want, name
        for name in EAGER:
            assert eagerly_counted(name, a, b, threads) == want, name


def eagerly_counted(name: str, left: np.ndarray, right: np.ndarray, threads: int) -> int:
    run = EAGER[name](native).open(threads, "count")
    found = sum(run.push(side, piece) for side, piece in ((0, left[:50_000]), (1, right), (0, left[50_000:])))
    return found + run.finish()


def test_eager_and_lazy_give_the_same_pairs_once() -> None:
    rng = np.random.default_rng(5)
    left, right = zipf(rng, 2000, 1.0), zipf(rng, 1500, 1.0)
    (_, first), *others = [eagerly(name, [(0, left[:900]), (1, right), (0, left[900:])], 2) for name in EAGER]
    assert all(first == pairs for _, pairs in others)
    joined = LAZY["prj"](native).join(left, right, "pairs", 2)
    assert sorted(zip(joined[0].tolist(), joined[1].tolist(), strict=True)) == first
