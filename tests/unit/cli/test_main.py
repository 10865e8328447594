"""The command line as a whole: help, version, errors and exit codes."""

import pytest

from benchmarks.fresh import fresh
from penstock.errors import WindowError


def test_help_names_every_command(penstock):
    result = penstock("--help")
    assert result.exit_code == 0
    assert all(name in result.output for name in ("demo", "run", "sql", "explain", "bench", "doctor"))


def test_the_version_is_shown(penstock):
    result = penstock("--version")
    assert result.exit_code == 0
    assert result.output.startswith("penstock ")


def test_help_loads_neither_pyarrow_nor_numpy_nor_llvm():
    script = (
        "import sys; from typer.testing import CliRunner; from penstock.cli.main import app;"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0;"
        "print(sorted({'pyarrow', 'numpy', 'llvmlite', 'polars', 'pandas'} & set(sys.modules)))"
    )
    assert fresh(["-c", script]) == "[]\n"


def test_an_unknown_command_is_misuse(penstock):
    assert penstock("bake").exit_code == 2


def test_a_penstock_error_is_one_line_and_exit_code_1(penstock, queries):
    result = penstock("run", f"{queries}:broken")
    assert result.exit_code == 1
    assert result.stderr == "error: a window of 0 s holds nothing: give it a positive size\n"
    assert result.stdout == ""


def test_debug_lets_the_error_through(penstock, queries):
    assert isinstance(penstock("--debug", "run", f"{queries}:broken").exception, WindowError)


def test_the_environment_can_turn_debug_on(penstock, queries, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    assert isinstance(penstock("run", f"{queries}:broken").exception, WindowError)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        (["--threads", "one"], "--threads 'one' is not a list of numbers"),
        (["--threads", "0,1"], "at least 1"),
        (["--peers", "polars,excel"], "unknown peers excel"),
    ],
)
def test_bad_bench_flags_are_misuse(penstock, flag, message):
    result = penstock("bench", "ysb", "--rows", "10", *flag)
    assert result.exit_code == 2
    assert message in result.stderr


def test_an_unknown_suite_is_misuse(penstock):
    assert penstock("bench", "tpch").exit_code == 2
