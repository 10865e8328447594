"""An integer result that does not fit is named, with its type and what to do."""

from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock import col

ROWS = pa.table(
    {
        "t": [1, 2, 3],
        "v": [1, 300, 3],
        "u": pa.array([1, 2, 9], pa.uint64()),
        "f": [1.0, float("nan"), 1e30],
        "big": [2**62, 2**62, 2**62],
    }
)
E = pk.from_arrow(ROWS, time="t", name="e")
WHERE = pk.left("big") * 4 > pk.right("u")

CASES: dict[str, tuple[Any, str]] = {
    "a cast": (E.select(x=col("v").cast("int8")), r"cast\(v, int8\) does not fit int8 \(-128 to 127\)"),
    "a cast in SQL": (pk.sql("select t, cast(v as tinyint) x from e", e=E), r"cast\(v, int8\) does not fit int8"),
    "a cast of NaN": (E.select(x=col("f").cast("int32")), r"cast\(f, int32\) .* NaN, infinite or beyond"),
    "a difference": (E.select(x=col("u") - 5), "u - 5 does not fit uint64, which has no numbers below zero"),
    "a filter": (E.filter(col("u") - 5 > 0), "u - 5 does not fit uint64"),
    "a product": (E.select(x=col("big") * 4), r"big \* 4 does not fit int64"),
    "two": (E.select(x=col("v").cast("int8"), y=col("big") * 4), r"cast\(v, int8\) \(int8\), big \* 4 \(int64\)"),
    "a sum": (E.window(10).agg(x=pk.sum("big")), r"sum\(big\) does not fit int64"),
    "a look-back": (E.rolling(10).agg(x=pk.sum("big")), r"sum\(big\) does not fit int64"),
    "a window of rows": (E.window(pk.rows(3)).agg(x=pk.sum("big")), r"sum\(big\) does not fit int64"),
    "after a sum": (E.window(10).agg(x=pk.sum("u") - 20), r"sum\(u\) \(uint64\), sum\(u\) - 20 \(uint64\)"),
    "a signal": (E.signal("big") * 4, r"value \* 4 does not fit int64"),
    "a signal's sum": (E.signal("big").rolling(10).sum(), r"sum\(value\) does not fit int64"),
    "a condition of a join": (
        E.join(E.rename({"t": "t2"}), on="v", window=pk.tumbling(10), where=WHERE),
        r"`left.big` \* 4 does not fit int64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["native", "interpret"])
@pytest.mark.parametrize("case", CASES)
def test_an_overflow_names_the_operation_and_its_type(case: str, backend: str) -> None:
    query, message = CASES[case]
    with pytest.raises(pk.OverflowError, match=message):
        query.collect(engine=pk.Engine(backend=backend))


def test_what_cannot_overflow_is_not_suspected() -> None:
    narrow = pk.from_arrow(ROWS.set_column(1, "v", pa.array([1, 2, 3], pa.int8())), time="t")
    with pytest.raises(pk.OverflowError, match=r"^big \* 4 does not fit int64"):
        narrow.select(x=col("v").cast("int64"), y=col("v") + 1, z=col("big") * 4).collect()
