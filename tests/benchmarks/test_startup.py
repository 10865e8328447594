"""Figures taken in fresh interpreters."""

import json

import pytest

from benchmarks import memory, startup
from benchmarks.fresh import fresh


def test_a_fresh_interpreter_finds_the_same_packages_and_no_kernel_cache():
    script = "import os, penstock.errors; print(repr(os.environ['PENSTOCK_CACHE_DIR']))"
    assert fresh(["-c", script]) == "''\n"


def test_a_fresh_interpreter_that_fails_gives_nothing():
    assert fresh(["-c", "raise SystemExit(3)"]) is None
    assert startup.fresh_seconds("raise SystemExit(3)") is None


def test_a_statement_costs_what_it_adds_to_the_interpreter(monkeypatch):
    monkeypatch.setattr(startup, "fresh_seconds", {"pass": 0.5, "import x": 2.0}.get)
    assert startup.beyond(0.5, "import x") == 1.5
    assert startup.beyond(None, "import x") is None
    assert startup.beyond(0.5, "import broken") is None


def test_the_best_of_the_probes_counts(monkeypatch):
    outputs = iter([json.dumps({"compile_ms": 30.0}), None, json.dumps({"compile_ms": 20.0})])
    monkeypatch.setattr(startup, "fresh", lambda arguments: next(outputs, None))
    assert startup.least(startup.probes(), "compile_ms") == 20.0


def test_probes_that_all_fail_leave_figures_without_a_value(monkeypatch):
    for module in (startup, memory):
        monkeypatch.setattr(module, "fresh", lambda arguments: None)
    figures = startup.startup_figures() + memory.memory_figures()
    assert {figure.value for figure in figures} == {None}


def test_the_resident_size_is_read_from_the_kernel():
    if not memory.Path("/proc/self/status").exists():
        pytest.skip("MEMORY IS NOT MEASURED HERE: no /proc")
    assert memory.status_bytes("VmHWM") >= memory.status_bytes("VmRSS") > 1_000_000
