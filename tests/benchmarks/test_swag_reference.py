"""The two-stacks reference and Penstock's kernel against plain windows, for every size and slide."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.reference import NoCompilerError
from benchmarks.reference.swag import KINDS, load_swag
from benchmarks.swag.kernel import count_kernel, windows_of
from benchmarks.swag.subjects import MAIN, OTHERS, Shape, numbers

SHAPES = [
    *[(size, 1) for size in (1, 3, 8, 9, 37, 96, 1024)],
    *[(1024, slide) for slide in (2, 4, 8, 16, 64, 512, 1024)],
    *[(1024, 96), (100, 7), (1000, 250), (90, 30), (17, 5), (40, 3), (64, 12)],
    *[(1, 2), (3, 7), (16, 100)],
]
ROWS = [0, 1, 8, 1_023, 1_024, 5_003]
GUARD = 77


@pytest.fixture(scope="module")
def reference():
    found = load_swag()
    if isinstance(found, NoCompilerError):
        pytest.skip(f"THE C++ REFERENCE IS NOT TESTED: {found}")
    return found


def draw(subject, rows):
    random = np.random.default_rng(rows)
    if subject.dtype == "int32":  # sums of these do not fit 32 bits
        return random.integers(-(2**31), 2**31 - 1, rows, dtype=np.int32)
    return random.normal(size=rows)


def plain(subject, data, size, slide):
    if data.size < size:
        return np.empty(0, subject.result)
    windows = sliding_window_view(data, size)[::slide]
    wide = windows.astype("int64") if subject.dtype == "int32" else windows
    return {"sum": wide.sum, "min": windows.min, "avg": wide.mean}[subject.aggregate](axis=1)


@pytest.mark.parametrize("subject", MAIN + OTHERS, ids=str)
@pytest.mark.parametrize("scans", [True, False], ids=["scans", "paper"])
def test_the_reference_aggregates_every_full_window_and_writes_nothing_else(reference, subject, scans):
    for rows in ROWS:
        data = draw(subject, rows)
        for size, slide in SHAPES:
            expected = plain(subject, data, size, slide)
            out = np.full(expected.size + 1, GUARD, subject.result)
            assert reference.count(subject.kind, data, size, slide, out, scans) == expected.size
            np.testing.assert_allclose(out[:-1], expected, rtol=1e-12, atol=1e-9, err_msg=f"{size}/{slide}")
            assert out[-1] == GUARD


@pytest.mark.parametrize("subject", MAIN + OTHERS, ids=str)
@pytest.mark.parametrize(
    ("size", "slide"), [(8, 1), (1024, 1), (1024, 16), (1024, 1024), (1024, 96), (100, 7)]
)
def test_penstocks_kernel_gives_the_same(subject, size, slide):
    data = draw(subject, 5_003)
    expected = plain(subject, data, size, slide)
    out = np.full(expected.size + 1, GUARD, subject.result)
    assert count_kernel(subject, size, slide)(data, out) == expected.size
    np.testing.assert_allclose(out[:-1], expected, rtol=1e-12, atol=1e-9)
    assert out[-1] == GUARD


@pytest.mark.parametrize("shape", Shape)
def test_any_order_of_data_is_aggregated_alike(reference, shape):
    subject = MAIN[1]
    data = numbers(shape, subject.dtype, 3_000)
    expected = plain(subject, data, 100, 1)
    out = np.empty(expected.size, subject.result)
    reference.count(subject.kind, data, 100, 1, out)
    assert out.tolist() == expected.tolist()


@pytest.mark.parametrize(("rows", "windows"), [(0, 0), (9, 0), (10, 1), (12, 1), (13, 2)])
def test_only_full_windows_count(rows, windows):
    assert windows_of(rows, 10, 3) == windows


def test_every_subject_has_a_number_in_the_reference():
    assert [subject.kind for subject in (*MAIN, *OTHERS)] == list(KINDS)


@pytest.mark.parametrize(("size", "slide"), [(10, 10), (10, 5), (10, 1), (64, 2)])
def test_time_windows_that_hold_rows_are_averaged(reference, size, slide):
    random = np.random.default_rng(size)
    times = np.sort(random.choice([random.integers(-50, 0), *random.integers(300, 900, 500)], 400))
    values = random.random(400)
    starts = range((times[0] - size) // slide * slide, times[-1] + 1, slide)
    expected = {
        start: values[inside].mean()
        for start in starts
        if (inside := (times >= start) & (times < start + size)).any()
    }
    found, means = reference.time_avg(times, values, size, slide)
    assert found.tolist() == list(expected)
    np.testing.assert_allclose(means, list(expected.values()), rtol=1e-12)


def test_no_rows_have_no_time_windows(reference):
    starts, means = reference.time_avg(np.empty(0, np.int64), np.empty(0), 10, 1)
    assert starts.size == means.size == 0


def test_reading_gives_the_sum_of_all_words(reference):
    assert reference.read(np.arange(1_000)) == 499_500
