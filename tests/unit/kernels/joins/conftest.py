"""Small windows, divided as for several threads."""

from __future__ import annotations

import pytest

from penstock.runtime.joining import eager, npj, ordered, prj, sort_merge, window


@pytest.fixture
def parts_in_turn(monkeypatch):
    """Divide even a few rows, and do one thread's part after the other: interpreted kernels know no atomics."""
    monkeypatch.setattr(window, "FEW_ROWS", 0)
    for module in (eager, npj, ordered, prj, sort_merge):
        monkeypatch.setattr(module, "run_on_threads", lambda work: [each() for each in work])
