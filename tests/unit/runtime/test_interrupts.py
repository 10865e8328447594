"""An interrupt at any line of a call: the query refuses all that follows, or nothing of the call was done.

A tracing function raises KeyboardInterrupt at the k-th line, as Ctrl-C would between two lines. Whoever interrupts repeats
the call: it is refused, or the answer is that of a run without interrupts. Lines at which Python itself never looks for a
signal are left out (`unsignalled`).
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from tests.unit.runtime.queries import QUERIES, Feed, reported

SOURCE = str(Path(pk.__file__).parent)
# Freed blocks come back within `__del__`, where Python ignores what is raised: test_recycled.py interrupts that.
IGNORED = ("recycled.py",)
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


ENGINES = {1: pk.Engine(threads=1), 2: pk.Engine(threads=2, task_bytes=64)}
SAMPLES = 9  # lines to interrupt at, of each call


@cache
def unsignalled(code: CodeType) -> frozenset[int]:
    """Where lines begin at which Python looks for no signal before it has called `__exit__`, or has entered a `try`.

    Its handlers do not cover these places: an exception that a tracing function raises there would leave a lock closed.
    """
    found, entered, line = set(), set(), 0
    for instruction in dis.get_instructions(code):
        line = instruction.starts_line or line
        if instruction.opname == "BEFORE_WITH":
            entered.add(line)
        elif instruction.starts_line is not None and (instruction.opname == "NOP" or line in entered):
            found.add(instruction.offset)
    return frozenset(found)


@contextmanager
def interrupted(line: int | None) -> Iterator[list[int]]:
    """Raise KeyboardInterrupt at a line of Penstock's (None: at none); `[0]` counts lines."""
    lines = [0]

    def within(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "line" and frame.f_lasti not in unsignalled(frame.f_code):
            lines[0] += 1
            if lines[0] == line:
                raise KeyboardInterrupt
        return within

    def called(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        file = frame.f_code.co_filename
        return within if file.startswith(SOURCE) and not file.endswith(IGNORED) else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield lines
    finally:
        sys.settrace(before)


def lines_of(call: Callable[[], object]) -> int:
    with interrupted(None) as lines:
        call()
    return lines[0]


def spread(many: int, samples: int = SAMPLES) -> list[int]:
    """Lines all over a call, the first and last ones among them, where entering and leaving it are."""
    ends = [*range(1, 12), *range(many - 5, many + 1)]
    return sorted({line for line in [*ends, *np.linspace(1, many, samples).astype(int).tolist()] if line > 0})


def answer(calls: list[Callable[[], list[pa.RecordBatch]]]) -> list[str]:
    return sorted(row for call in calls for row in reported(call()))


@pytest.mark.parametrize("threads", ENGINES)
@pytest.mark.parametrize("name", QUERIES)
def test_after_an_interrupt_a_live_query_refuses_or_its_answer_is_exact(name: str, threads: int) -> None:
    query, engine = QUERIES[name](), ENGINES[threads]
    feed = Feed.made(query.names)
    expected = answer(feed.calls(query.open(engine=engine)))
    assert expected, "a query without results proves nothing"
    live = query.open(engine=engine)
    lengths = [lines_of(call) for call in feed.calls(live)]
    refused, exact = 0, 0
    for victim, length in enumerate(lengths):
        for line in spread(length):
            live = query.open(engine=engine)
            calls = feed.calls(live)
            got = answer(calls[:victim])
            try:
                with interrupted(line):
                    got += reported(calls[victim]())
                remaining = calls[victim + 1 :]
            except KeyboardInterrupt:
                remaining = calls[victim:]
            try:
                got += answer(remaining)
            except pk.StateError:
                check_refusal(live)
                refused += 1
            else:
                assert sorted(got) == expected, f"call {victim}, line {line}"
                exact += 1
    assert refused and exact


def check_refusal(live: Any) -> None:
    """Everything is refused that would show what the query holds."""
    for call in (live.state, live.wait, live.finish, lambda: live.advance(1_000)):
        with pytest.raises(pk.StateError, match="halfway"):
            call()


@pytest.mark.parametrize("threads", ENGINES)
@pytest.mark.parametrize("name", QUERIES)
def test_after_an_interrupted_run_the_next_ones_answer_as_ever(name: str, threads: int) -> None:
    query, engine = QUERIES[name](), ENGINES[threads]
    tables = Feed.made(query.names).tables()
    expected = reported(query.collect(tables, engine=engine).to_batches())
    length = lines_of(lambda: query.collect(tables, engine=engine))
    for line in spread(length, 40):
        with interrupted(line), suppress(KeyboardInterrupt):
            query.collect(tables, engine=engine)
        assert reported(query.collect(tables, engine=engine).to_batches()) == expected, f"line {line}"


@pytest.mark.parametrize("name", ["window by text behind a filter", "rolling", "window join", "signal"])
def test_a_query_that_was_interrupted_while_it_was_compiled_answers_as_ever(name: str) -> None:
    feed = Feed.made(QUERIES[name]().names)
    tables = feed.tables()
    expected = reported(QUERIES[name]().collect(tables).to_batches())
    length = lines_of(lambda: QUERIES[name]().collect(tables))
    for line in np.linspace(1, length, 25).astype(int).tolist():
        query = QUERIES[name]()
        with interrupted(line), suppress(KeyboardInterrupt):
            query.collect(tables)
        assert reported(query.collect(tables).to_batches()) == expected, f"line {line}"


@pytest.mark.parametrize("name", ["window", "session", "window join", "signal"])
def test_an_interrupted_run_over_batches_never_ends_as_if_its_input_had(name: str) -> None:
    query = QUERIES[name]()
    feed = Feed.made(query.names)

    def run() -> Any:
        return query.run({name: [batch[name] for batch in feed.batches] for name in query.names})

    expected = reported(list(run()))
    assert expected
    batches = run()
    length = lines_of(lambda: list(batches))
    refused = 0
    for line in spread(length, 30):
        batches, got = run(), []
        with interrupted(line), suppress(KeyboardInterrupt):
            got.extend(reported([batch]) for batch in batches)
        try:
            got.extend(reported([batch]) for batch in batches)
        except pk.StateError:
            with pytest.raises(pk.StateError, match="halfway"):
                batches.state()
            refused += 1
        else:
            assert [row for part in got for row in part] == expected, f"line {line}"
    assert refused
