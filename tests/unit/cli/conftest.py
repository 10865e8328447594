"""A command line to call, and query files to call it on."""

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app

STUB = '''
"""Queries of a user; `Stub` stands for a compiled query, so that these tests are about the command line."""
from __future__ import annotations

from datetime import date
from typing import Literal

import pyarrow as pa

from penstock.errors import WindowError


class Stub:
    def __init__(self, **columns):
        self.columns = columns

    def collect(self, engine=None):
        return pa.table(self.columns)

    def explain(self, stage="plan"):
        return f"stage {stage} of [bold]{sorted(self.columns)}[/bold]"


class Broken:
    def collect(self, engine=None):
        raise WindowError("a window of 0 s holds nothing: give it a positive size")


views = Stub(page=["/", "/pay"], n=[3, None])
broken = Broken()
number = 42


def daily(day: date, top: int = 10, exact: bool = True, how: Literal["a", "b"] = "a", tag: str | None = None):
    return Stub(day=[day], top=[top], exact=[exact], how=[how], tag=[tag])


def fails():
    return 1 // 0


def many(rows: int):
    return Stub(n=list(range(rows)))
'''


@pytest.fixture
def queries(tmp_path):
    path = tmp_path / "q.py"
    path.write_text(STUB)
    return path


@pytest.fixture
def penstock(monkeypatch):
    """Call the command line and give its result."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "dumb")

    def call(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return call
