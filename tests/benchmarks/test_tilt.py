"""The suite over regular signals: contenders do their work on the clock, and everyone gives the same answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.options import SuiteOptions
from benchmarks.reference import NoCompilerError
from benchmarks.reference.tilt import load_tilt
from benchmarks.tilt import applications, keyed
from benchmarks.tilt.applications import APPLICATIONS
from benchmarks.tilt.peers import PEERS, polars
from benchmarks.tilt.suite import application_case, batch_figure
from tests.examples import test_applications as examples

ROWS = 10_000


def quiet(text: str) -> None:
    del text


def test_a_peers_query_runs_when_it_is_called_and_not_before() -> None:
    """A query that ran while its contender was made would be timed as nothing at all."""
    pytest.importorskip("polars")
    ran: list[int] = []

    def counting(pl, x):
        return x.map_batches(lambda values: ran.append(len(values)) or values, return_dtype=pl.Float64)

    run = polars(counting)(applications.plain(10))
    assert ran == []
    run()
    run()
    assert ran == [10, 10]


@pytest.mark.parametrize("asked", APPLICATIONS, ids=lambda application: application.name)
def test_everyone_who_can_answer_an_application_gives_the_same(asked) -> None:
    options = SuiteOptions(ROWS, 3, 2, ("polars", "pandas"))
    case = application_case(asked, ROWS, options, load_tilt(), quiet)
    answered = [outcome for outcome in case.outcomes if not outcome.error]
    assert all(outcome.agrees for outcome in answered)
    assert {
        outcome.error for outcome in case.outcomes if outcome.error and "No module" not in outcome.error
    } <= {None}
    assert len(answered) >= 3


@pytest.mark.parametrize("asked", keyed.APPLICATIONS, ids=lambda application: application.name)
def test_data_frames_give_the_same_by_key(asked) -> None:
    case = keyed.keyed_case(asked, 30 * keyed.KEYS, 3, ("polars",), quiet)
    answered = [outcome for outcome in case.outcomes if not outcome.error]
    assert all(outcome.agrees for outcome in answered)
    assert {
        outcome.error for outcome in case.outcomes if outcome.error and "No module" not in outcome.error
    } <= {None}
    assert case.figures[0].value


def test_the_value_at_a_sample_is_that_of_its_own_key() -> None:
    intervals = pa.table({"start": [0, 5, 1], "end": [5, None, 4], "k": [1, 1, 2], "value": [1.0, 2.0, 3.0]})
    samples = pa.table({"t": [0, 0, 3, 4, 9], "k": [1, 2, 2, 2, 1]})
    found = keyed.at_samples(intervals, samples)["v"].to_numpy()
    assert np.array_equal(found, [1.0, np.nan, 3.0, np.nan, 2.0], equal_nan=True)


def test_the_applications_are_those_of_the_examples() -> None:
    table = applications.uniform(10)
    x, slow = applications.read(table), applications.read(table, "5ms")
    pairs: Sequence[tuple[object, object]] = (
        (applications.trend(x, 20, 50), examples.trend(x, 20, 50)),
        (applications.rsi(x, 1, 14), examples.rsi(x, 1, 14)),
        (applications.normalise(x, 100), examples.normalise(x, 100)),
        (applications.impute(x, 100), examples.impute(x, 100)),
        (applications.vibration(x, 100), examples.vibration(x, 100)),
        (applications.fraud(x, 1, 240), examples.fraud(x, 1, 240)),
        (applications.energy(slow), examples.energy(slow)),
    )
    for ours, example in pairs:
        assert ours.name == example.name  # a digest of the definition


def test_the_reference_loops_agree_with_numpy() -> None:
    reference = load_tilt()
    if isinstance(reference, NoCompilerError):
        pytest.skip(str(reference))
    x = np.random.default_rng(1).uniform(-50, 50, 10_000)
    out = np.empty(10_000)
    reference.loop("normalise", x, out)()
    assert np.allclose(out, (x - x.mean()) / x.std())


def test_every_peer_belongs_to_an_application() -> None:
    assert set(PEERS) <= {application.name for application in APPLICATIONS}


def test_without_batches_there_is_no_figure_of_them() -> None:
    assert batch_figure([]).value is None


def test_gaps_are_one_in_ten() -> None:
    (table,) = applications.gappy(ROWS)
    assert isinstance(table, pa.Table)
    assert 0.08 < table["x"].null_count / ROWS < 0.12
