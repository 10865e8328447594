"""check_aggregate finds functions that contradict each other, and lets the others be."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.api.custom import CustomAggregate
from tests.custom_aggregates import (
    GEOMETRIC,
    PARITY,
    QUOTIENTS,
    RMS,
    SMALLEST,
    SPREAD,
    SQUARES,
    TALLY,
    VARIANCE,
    WEIGHTED,
)


def same(s: Any) -> Any:
    return s


SOUND = [
    (RMS, "float64"),
    (RMS, ["int8"]),
    (RMS, [1.0, 2.5, None, 1e6]),
    (RMS, pa.array([1, 2, None])),
    (GEOMETRIC, pa.chunked_array([[1.0, 2.0], [7.0]])),
    (SPREAD, pa.float64()),
    (WEIGHTED, [float, int]),
    (WEIGHTED, [(1.0, 2), (2.0, 3)]),
    (WEIGHTED, pa.table({"x": [1.0, 2.0], "w": [1, 2]})),
    (VARIANCE, "float64"),
    (SQUARES, "uint8"),
    (PARITY, "bool"),
    (TALLY, []),
    (SMALLEST, [3]),
    (QUOTIENTS, ["int64", "int64"]),
]


@pytest.mark.parametrize(("of", "data"), SOUND)
def test_sound_aggregates_pass_on_values_arrow_data_and_types(of: CustomAggregate, data: object) -> None:
    report = pk.check_aggregate(of, data)
    assert "merge agrees with add" in report.laws
    assert ("remove undoes add" in report.laws) == (of.definition.remove is not None)
    assert report.samples == 200


def broken(**given: Any) -> CustomAggregate:
    fine: dict[str, Any] = {"init": 0, "add": lambda s, x: s + x, "result": same}
    return pk.aggregate(**{**fine, **given})


UNSOUND = {
    "merge agrees with add": broken(merge=lambda a, b: a + b + 1),
    "merge is associative": broken(
        init=(0, False),
        add=lambda s, x: (s[0] + x, s[1]),
        result=lambda s: s[0],
        merge=lambda a, b: (a[0] + b[0] + a[1], True),
    ),
    "init changes nothing in merge": broken(add=lambda s, x: x, merge=lambda a, b: b, commutative=False),
    "the order of rows makes no difference": broken(
        init=None, add=lambda s, x: x, merge=lambda a, b: b.fill_null(a)
    ),
    "remove undoes add": broken(remove=lambda s, x: s),
}


@pytest.mark.parametrize(("law", "of"), UNSOUND.items(), ids=UNSOUND)
def test_a_broken_law_is_told_with_the_smallest_rows_that_break_it(law: str, of: CustomAggregate) -> None:
    with pytest.raises(pk.AggregateError, match="not so for the rows") as caught:
        pk.check_aggregate(of, [5, 7, 11])
    said = str(caught.value)
    assert said.startswith(f"{law}: not so")
    assert f"defined at {__file__}:" in said
    assert len(said) < 300


def test_an_order_that_matters_may_be_declared() -> None:
    last = {"init": None, "add": lambda s, x: x, "merge": lambda a, b: b.fill_null(a)}
    with pytest.raises(pk.AggregateError, match="the order of rows"):
        pk.check_aggregate(broken(**last), [1, 2, 3])
    assert len(pk.check_aggregate(broken(**last, commutative=False), [1, 2, 3]).laws) == 3


def test_samples_are_the_same_every_time_and_others_with_another_seed() -> None:
    def said(seed: int) -> str:
        with pytest.raises(pk.AggregateError) as caught:
            pk.check_aggregate(UNSOUND["remove undoes add"], "int64", seed=seed)
        return str(caught.value)

    assert said(1) == said(1)
    assert len({said(seed) for seed in range(5)}) > 1


def test_floats_may_differ_by_the_tolerance() -> None:
    inexact = pk.aggregate(init=0.0, add=lambda s, x: s + x, result=same, remove=lambda s, x: s - x)
    values = [0.1, 0.2, 0.3, 1e9]
    assert pk.check_aggregate(inexact, values).laws
    with pytest.raises(pk.AggregateError, match="remove undoes add"):
        pk.check_aggregate(inexact, values, tolerance=0)


def test_samples_that_leave_64_bits_say_nothing() -> None:
    assert pk.check_aggregate(SQUARES, [2**33, 2, 3, 4, 5]).laws
    with pytest.raises(pk.AggregateError, match="in every sample"):
        pk.check_aggregate(SQUARES, [2**33])


MISTAKEN: list[tuple[Any, Any, str]] = [
    (RMS, [], "no row in which every argument is there"),
    (RMS, [None], "of different types, or all null"),
    (RMS, [1, "a"], "of different types"),
    (RMS, "string", "no samples of type string"),
    (RMS, 7, "a int is no sample"),
    (RMS, ["int64", "int64"], "takes 1 arguments, but the data has 2 columns"),
    (WEIGHTED, pa.table({"x": [1.0]}), "takes 2 arguments, but the data has 1 columns"),
    (pk.sum, [1], "no aggregate that pk.aggregate made"),
]


@pytest.mark.parametrize(("of", "data", "says"), MISTAKEN)
def test_a_sample_that_does_not_fit_is_refused(of: Any, data: Any, says: str) -> None:
    with pytest.raises(pk.PenstockError, match=says):
        pk.check_aggregate(of, data)
