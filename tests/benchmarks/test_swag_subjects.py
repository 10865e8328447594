"""The generators of the sliding-window benchmarks: seeded, ordered, and as adversarial as they claim."""

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.swag.subjects import MAIN, OTHERS, Shape, numbers, samples, spiky

SECOND = 1_000_000


def seconds_of(table):
    times = table.column("ts").to_numpy().astype(np.int64)
    return np.bincount((times - times[0]) // SECOND)


@pytest.mark.parametrize("dtype", ["int32", "float64"])
@pytest.mark.parametrize("shape", Shape)
def test_numbers_have_the_type_and_length_asked_for_and_are_the_same_each_time(shape, dtype):
    data = numbers(shape, dtype, 1_000)
    assert (data.dtype, data.size) == (dtype, 1_000)
    assert np.array_equal(data, numbers(shape, dtype, 1_000))


def test_ascending_numbers_lose_their_minimum_with_every_row_and_descending_ones_never():
    assert (np.diff(numbers(Shape.ASCENDING, "int32", 500)) > 0).all()
    assert (np.diff(numbers(Shape.DESCENDING, "int32", 500)) < 0).all()


def test_a_sawtooth_rises_and_falls_back_often():
    falls = np.count_nonzero(np.diff(numbers(Shape.SAWTOOTH, "int32", 10_000)) < 0)
    assert falls == 10_000 // 777


def test_results_are_exact_sums_and_float_averages():
    assert [subject.result for subject in (*MAIN, *OTHERS)] == [
        "int64",
        "int32",
        "float64",
        "float64",
        "float64",
        "float64",
    ]


def test_spiky_arrivals_are_ordered_and_range_from_silence_to_a_hundred_thousand_a_second():
    table = spiky(2_000_000)
    counts = seconds_of(table)
    assert table.num_rows == 2_000_000
    assert (np.diff(table.column("ts").to_numpy().astype(np.int64)) >= 0).all()
    assert counts.min() == 0
    assert 50_000 < counts.max() <= 100_000
    assert counts.max() > 20 * np.median(counts)


def test_spiky_arrivals_are_seeded():
    assert spiky(10_000) == spiky(10_000)
    assert spiky(10_000) != spiky(10_000, seed=2)


def test_samples_are_a_step_apart_with_keys_in_range():
    table = samples(5_000, 1_000, keys=7)
    assert set(np.diff(table.column("ts").to_numpy().astype(np.int64))) == {1_000}
    assert set(table.column("k").to_pylist()) == set(range(7))
    assert table.schema.types == [pa.timestamp("us"), pa.int64(), pa.float64(), pa.int64()]
