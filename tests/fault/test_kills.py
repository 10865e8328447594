"""Kill -9 at named steps: the table holds the batch answer, nothing lost, nothing twice. `campaign.py` kills at random."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.fault.cases import check, filled
from tests.fault.processes import kill_all, started


def ended(folder: Path, *options: str) -> int:
    """Run a driver to its end, then make sure that nothing of it lives on."""
    process = started(folder, *options)
    try:
        return process.wait(timeout=280)
    finally:
        kill_all(process)


@pytest.mark.slow
def test_a_driver_that_dies_before_and_after_its_sink_has_written_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    expected = filled(tmp_path, seed=1, files=3)
    for step, batch in (("before", "1"), ("after", "2")):
        assert ended(tmp_path, step, batch) == -signal.SIGKILL
    assert ended(tmp_path) == 0, (tmp_path / "driver.log").read_text()[-2000:]
    check(tmp_path, expected, 3, "after two kills")
