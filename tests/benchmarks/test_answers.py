"""When two answers are the same: floats nearly, everything else exactly."""

import pyarrow as pa
import pytest

from benchmarks.answers import agree, normalise


def floats(*values):
    return pa.table({"m": pa.array(values, pa.float64())})


@pytest.mark.parametrize(
    ("answer", "standard", "same"),
    [
        (floats(1.0), floats(1.0 + 1e-12), True),
        (floats(1.0), floats(1.0 + 1e-6), False),
        (floats(0.0, 1e6), floats(1e-7, 1e6), True),
        (floats(0.0, 1.0), floats(1e-7, 1.0), False),
        (floats(None, 1.0), floats(None, 1.0), True),
        (floats(None, 1.0), floats(0.0, 1.0), False),
        (floats(float("nan")), floats(float("nan")), True),
        (floats(float("nan")), floats(None), False),
        (floats(float("inf")), floats(float("-inf")), False),
        (floats(1.0), floats(1.0, 2.0), False),
        (floats(), floats(), True),
        (pa.table({"m": [1]}), pa.table({"m": [1]}), True),
        (pa.table({"m": [1_000_000_000_000]}), pa.table({"m": [1_000_000_000_001]}), False),
        (pa.table({"m": [1]}), floats(1.0), False),
        (pa.table({"m": [1]}), pa.table({"n": [1]}), False),
    ],
)
def test_answers_agree_if_they_differ_by_rounding_only(answer, standard, same):
    assert agree(normalise(answer), normalise(standard)) is same


def test_an_answer_of_one_column_keeps_its_order():
    assert normalise(pa.table({"m": [3, 1, 2]})).column("m").to_pylist() == [3, 1, 2]
