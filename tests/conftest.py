"""Hypothesis profiles (how hard each target tries, chosen with --hypothesis-profile), golden files, and a
kernel cache that no run inherits."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
FIXTURES = TESTS / "fixtures"
# What `make check` leaves to `make test`, beside tests that are marked one by one.
SLOW = (
    "cluster",  # starts a Spark cluster
    "oracle",  # compiles a new query for each example
    "security",  # starts many processes
    "spark",  # starts Spark
    "unit/api/test_aggregate_matrix.py",  # every aggregate in every window
    "benchmarks",  # compiles C++ and runs the peers
    "unit/runtime/test_incremental.py",  # long streams
    "unit/runtime/test_interrupts.py",  # thousands of runs, traced line by line
)

# What `make test` leaves to targets of their own.
CAMPAIGNS = (
    "fault",  # starts and kills Spark drivers: make fault
    "kafka",  # fetches and starts a broker: make kafka
)

# Compiling a kernel takes longer than Hypothesis expects of an example: no deadlines, no speed checks.
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

settings.register_profile("quick", _COMMON, max_examples=10, derandomize=True)
settings.register_profile("ci", _COMMON, max_examples=25, derandomize=True)
settings.register_profile("fuzz", _COMMON, max_examples=5_000, print_blob=True)
settings.load_profile("ci")


def pytest_configure(config: pytest.Config) -> None:
    """Share one new cache among the workers: code that an older compiler left behind proves nothing."""
    if hasattr(config, "workerinput"):
        return
    folder = tempfile.mkdtemp(prefix="penstock-kernels-")
    os.environ["PENSTOCK_CACHE_DIR"] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(TESTS).as_posix().startswith(SLOW):
            item.add_marker(pytest.mark.slow)
        if item.path.relative_to(TESTS).as_posix().startswith(CAMPAIGNS):
            item.add_marker(pytest.mark.campaign)
    if not config.getoption("--campaign"):
        left = [item for item in items if item.get_closest_marker("campaign")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens", action="store_true", help="rewrite the expected texts in tests/fixtures"
    )
    parser.addoption("--campaign", action="store_true", help="run every one of the long tests, not a slice")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a file of tests/fixtures, or write it there with --update-goldens."""

    def check(name: str, text: str) -> None:
        path = FIXTURES / name
        if request.config.getoption("--update-goldens"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{name} is missing: run pytest --update-goldens and read what it writes"
        assert text == path.read_text(encoding="utf-8")

    return check
