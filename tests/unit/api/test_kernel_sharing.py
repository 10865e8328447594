"""Queries that differ in constants alone share their kernels; what is kept of others is bounded."""

from __future__ import annotations

import datetime as dt
import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.codegen.cache import MOST_KERNELS, KernelCache
from penstock.codegen.native import NativeKernel
from penstock.compile import kernel_cache
from penstock.loop.nodes import Kernel
from penstock.loop.show import fingerprint

ROWS = 60
START = dt.datetime(2024, 1, 1)
TABLE = pa.table(
    {
        "t": pa.array(range(ROWS)),
        "k": pa.array([place % 3 for place in range(ROWS)]),
        "v": pa.array([place * 7 % 50 for place in range(ROWS)]),
        "i": pa.array([place * 5 % 40 for place in range(ROWS)], pa.int32()),
        "f": pa.array([None if place % 11 == 0 else place / 4 for place in range(ROWS)]),
        "x": pa.array([f"name {place % 9}" for place in range(ROWS)]),
        "at": pa.array([START + dt.timedelta(seconds=place) for place in range(ROWS)]),
    }
)
EVENTS = pk.from_arrow(TABLE, time="t", name="events")
v, i, f, x, at = (pk.col(name) for name in ("v", "i", "f", "x", "at"))


def scaled(by: int) -> Callable[..., object]:
    return pk.aggregate(
        init=(0,),
        add=lambda state, value: (state[0] + value * by,),
        merge=lambda a, b: (a[0] + b[0],),
        result=lambda state: state[0] + by,
    )


def smoothed(share: float) -> pk.Signal:
    values = EVENTS.signal("v")
    return pk.feedback(lambda before: before * share + values * (1.0 - share), initial=share)


SHAPES: dict[str, Callable[[int], object]] = {
    "comparison": lambda n: EVENTS.filter(v > n),
    "comparison with a smaller type": lambda n: EVENTS.filter(i <= n),
    "comparison with floats": lambda n: EVENTS.filter(f < n + 0.25),
    "several": lambda n: EVENTS.filter((v > n) & ~(f == n) | (i != n + 1)),
    "times": lambda n: EVENTS.filter(at >= START + dt.timedelta(seconds=n)),
    "texts": lambda n: EVENTS.filter(x == f"name {n % 9}"),
    "lists": lambda n: EVENTS.filter(v.is_in([n, n + 3, n + 5])),
    "range": lambda n: EVENTS.filter(v.is_between(n, n + 9)),
    "arithmetic": lambda n: EVENTS.with_columns(a=v * n + n, b=n - i, c=f / (n + 0.3)),
    "choice": lambda n: EVENTS.with_columns(a=pk.when(v > n).then(n).otherwise(f.fill_null(n + 1))),
    "windows": lambda n: EVENTS.filter(v > n).window(10, by="k").agg(a=pk.sum(v * n), m=pk.mean(f), n=pk.count()),
    "after windows": lambda n: EVENTS.window(10).agg(a=pk.sum(v) * n + 1).filter(pk.col("a") > n * 100),
    "offset": lambda n: EVENTS.window(pk.tumbling(50, offset=n + 1)).agg(a=pk.sum(v)),
    "look-back": lambda n: EVENTS.rolling(n + 10, by="k").agg(a=pk.sum(v + n)),
    "sessions": lambda n: EVENTS.filter(v > n).window(pk.session(7), by="k").agg(a=pk.max(v - n)),
    "aggregate of one's own": lambda n: EVENTS.window(10).agg(a=scaled(n)(v)),
    "signal": lambda n: EVENTS.signal("v") * n + 0.5,
    "feedback": lambda n: smoothed((n + 2) / 100),
    "sql": lambda n: pk.sql(f"select * from e where v > {n} and f < {n}.5", e=EVENTS),
}  # fmt: skip


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The kernels that are asked for, by what their code is found by."""
    pk.clear_cache()
    asked: set[str] = set()
    real = KernelCache.soonest

    def soonest(self: KernelCache, kernel: Kernel, build: object) -> NativeKernel:
        asked.add(fingerprint(kernel))
        return real(self, kernel, build)

    monkeypatch.setattr(KernelCache, "soonest", soonest)
    yield asked
    pk.clear_cache()


@pytest.mark.parametrize("shape", SHAPES)
def test_queries_that_differ_in_constants_share_kernels_and_have_their_own_answers(
    shape: str, compiled: set[str]
) -> None:
    query = SHAPES[shape]
    query(2).collect()  # 1 times a number is no multiplication
    first = set(compiled)
    for constant in range(3, 8):
        assert query(constant).collect() == query(constant).collect(engine=pk.Engine(backend="interpret"))
    assert compiled == first


def test_hundreds_of_constants_use_one_kernel(compiled: set[str]) -> None:
    values = TABLE["v"].to_numpy()
    for constant in range(-150, 150):
        found = EVENTS.filter(v > constant).collect()
        assert found.num_rows == np.count_nonzero(values > constant)
    assert len(compiled) == 1


def maps() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def shaped(number: int) -> pk.Stream:
    """A query of a shape of its own: the bits of a number choose operators."""
    value = pk.col("v")
    for bit in range(number.bit_length()):
        value = value + pk.col("i") if number >> bit & 1 else value - pk.col("i")
    return EVENTS.filter(value > 3)


needs_maps = pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="memory maps are listed on Linux only"
)


@needs_maps
def test_clearing_the_cache_frees_code_that_queries_were_compiled_to(compiled: set[str]) -> None:
    kept = [shaped(number) for number in range(64, 104)]
    answers = [stream.collect().num_rows for stream in kept]
    assert len(compiled) == len(kept)
    assert len(kernel_cache()) >= len(kept)
    pk.clear_cache()
    assert len(kernel_cache()) == 0
    assert [stream.collect().num_rows for stream in kept] == answers


@pytest.mark.campaign
@needs_maps
def test_a_hundred_thousand_constants_use_one_kernel_and_no_more_memory(compiled: set[str]) -> None:
    values = TABLE["v"].to_numpy()
    sizes = []
    for constant in range(-50_000, 50_000):
        found = EVENTS.filter(v > constant).collect()
        assert found.num_rows == np.count_nonzero(values > constant)
        if constant % 10_000 == 0:
            gc.collect()
            sizes.append((maps(), resident()))
    assert len(compiled) == 1
    assert_flat(sizes[1:])  # the first is from before the cache of plans is full


@pytest.mark.campaign
@needs_maps
def test_thousands_of_shapes_take_no_more_memory_once_the_cache_is_full(compiled: set[str]) -> None:
    sizes = []
    for number in range(8_192, 13_192):
        shaped(number).collect()
        if number % 500 == 0:
            gc.collect()
            sizes.append((maps(), resident()))
    assert len(compiled) == 5_000
    assert len(kernel_cache()) <= MOST_KERNELS
    assert_flat(sizes[3:])


def assert_flat(sizes: list[tuple[int, int]]) -> None:
    """From the first to the last, no more than a few maps and megabytes are added."""
    (first_maps, first_bytes), (last_maps, last_bytes) = sizes[0], sizes[-1]
    assert last_maps <= first_maps + 50, sizes
    assert last_bytes <= first_bytes + (16 << 20), sizes
