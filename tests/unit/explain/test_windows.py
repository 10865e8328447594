"""What `explain()` says about windows: the way, the algorithm of each aggregate and why, and how much is held."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk

SCHEMA = pa.schema(
    {"t": pa.int64(), "k": pa.int32(), "name": pa.string(), "i": pa.int64(), "f": pa.float64()}
)
EVENTS = pk.stream("events", SCHEMA, time="t")

SAID: dict[str, tuple[pk.Stream, list[str]]] = {
    "tumbling": (
        EVENTS.window(10, by="k").agg(s=pk.sum("i")),
        [
            "windows: 1 pane each, a pane being a slide of 10 ticks",
            "#0 sum(i): one pane; each window is one pane, read where it lies",
            "memory: panes of open windows x keys x 9 bytes",
        ],
    ),
    "sliding": (
        EVENTS.window(1000, every=1).agg(s=pk.sum("i"), m=pk.max("f")),
        [
            "windows: 1000 panes each, a pane being a slide of 1 ticks",
            "#0 sum(i): subtract-on-evict; sum takes out again exactly what left",
            "#1 max(f): two-stacks; nothing can be taken out of max again",
            # the presence of rows and the maximum in stacks, a 128-bit sum beside them
            "while emitting, at most 1001 x keys x 9 bytes + keys x 25 bytes a thread",
        ],
    ),
    "a slide that does not divide the size": (
        EVENTS.window(100, every=70).agg(n=pk.count()),
        [
            "windows: 3 panes each, a slide of 70 ticks being cut in two, 30 and 40, where others end",
            "#0 count(): recompute; a window has 3 panes only, soon merged anew",
            "while emitting, at most keys x 8 bytes a thread",
        ],
    ),
    "sessions": (
        EVENTS.window(pk.session(5), by="name").agg(s=pk.sum("i"), last=pk.last("f")),
        [
            "partitions: rows of ~in0 wait for the watermark",
            "#0 sum(i): recompute; windows do not overlap: each row is read once",
            "#1 last(f): frame ends;",
            "memory: the rows of open windows, 33 bytes and its texts a row: t, name, i, f",
        ],
    ),
    "look-backs": (
        EVENTS.rolling(5, by="k").agg(m=pk.median("f")),
        [
            "states per key: search trees of the values of each key: a row costs the logarithm of the rows held",
            "memory: one state of each row that a later one looks back on, and one of each key; rows ahead of the watermark",
        ],
    ),
    "look-backs of all values": (
        EVENTS.rolling(5, by="k").agg(m=pk.list("f")),
        [
            "#0 list(f): recompute; the result is all values of a window",
            "memory: the rows of open windows, 29 bytes a row: t, k, f",
        ],
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_explain_gives_algorithms_reasons_and_bounds(name: str) -> None:
    query, lines = SAID[name]
    text = str(query.explain())
    assert [line for line in lines if line not in text] == [], text


@pytest.mark.parametrize("stage", ["loop", "llvm"])
@pytest.mark.parametrize("name", [name for name in SAID if not name.startswith("look-backs")])
def test_every_window_shows_its_kernels(name: str, stage: str) -> None:
    query, _ = SAID[name]
    assert len(str(query.explain(stage=stage)).splitlines()) > 10
