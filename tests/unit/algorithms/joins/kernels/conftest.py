"""Small windows, divided as for several threads."""

from __future__ import annotations

import pytest

from penstock.algorithms.joins import eager, joiner, no_partitioning, radix, sort_merge


@pytest.fixture
def parts_in_turn(monkeypatch):
    """Divide even a few rows, and do one thread's part after the other: interpreted kernels know no atomics."""
    monkeypatch.setattr(joiner, "ROWS_FOR_ONE_THREAD", 0)
    for module in (eager, no_partitioning, no_partitioning, radix, sort_merge):
        monkeypatch.setattr(module, "run_on_threads", lambda work: [function() for function in work])
