"""Saved state that is damaged, cut, mixed up or made up is refused with a `StateError`, never read wrongly."""

from __future__ import annotations

import hashlib
import json
import os
import traceback
from collections.abc import Callable
from functools import cache

import pyarrow as pa
import pytest

import penstock as pk
from penstock.state import format
from penstock.state.format import _HEAD, _MAGIC, STATE_VERSION, encode_file, encode_table
from penstock.state.state import MANIFEST

SECRET = "hunter2-swordfish"
QUERY = (
    pk.stream("events", {"t": "int64", "k": "string", "v": "int64"}, time="t")
    .window(10, by="k")
    .agg(total=pk.sum("v"), least=pk.min("k"))
)


@cache
def saved() -> bytes:
    live = QUERY.open()
    live.push(pa.record_batch({"t": [1, 2, 3], "k": [SECRET, "b", None], "v": [1, 2, 770123]}))
    return live.state().to_bytes()


def refused(load: Callable[[], object]) -> str:
    with pytest.raises(pk.StateError) as caught:
        load()
    text = "".join(traceback.format_exception(caught.value))
    assert SECRET not in text and "770123" not in text
    return str(caught.value)


def test_every_flipped_byte_is_found() -> None:
    data = saved()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        with pytest.raises(pk.StateError):
            pk.State.from_bytes(bytes(changed))


def test_every_cut_is_found() -> None:
    data = saved()
    for length in range(len(data)):
        with pytest.raises(pk.StateError):
            pk.State.from_bytes(data[:length])


def test_more_behind_the_end_is_found() -> None:
    assert "more behind its end" in refused(lambda: pk.State.from_bytes(saved() + b"\0"))


@pytest.mark.parametrize("version", [STATE_VERSION - 1, STATE_VERSION + 1])
def test_another_version_is_named(version: int) -> None:
    data = bytearray(saved())
    data[len(_MAGIC)] = version
    assert f"version {version} of the format" in refused(lambda: pk.State.from_bytes(bytes(data)))


def test_large_states_take_few_bytes_and_go_on() -> None:
    rows = 3 * format.ROWS_WORTH_PACKING
    table = pa.table({"t": [0] * rows, "k": range(rows), "v": [7] * rows})
    totals = pk.stream("events", table.schema, time="t").window(10, by="k").agg(total=pk.sum("v"))
    with totals.open() as live:
        live.push(table)
        state = live.state()
    assert len(state.to_bytes()) < 12 * rows
    with totals.open(state=pk.State.from_bytes(state.to_bytes())) as live:
        assert live.state() == state
        results = pa.Table.from_batches(live.finish())
    assert results.sort_by("k").select(["k", "total"]) == pa.table({"k": range(rows), "total": [7] * rows})


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PENSTOCK\x00KERNEL\n" * 9, b"\x80\x04\x95" + b"." * 99])
def test_what_is_no_state_is_refused(data: bytes) -> None:
    assert "is not a saved state" in refused(lambda: pk.State.from_bytes(data))


def test_the_file_is_named_in_errors_and_its_rows_are_not(tmp_path) -> None:
    path = tmp_path / "events.state"
    path.write_bytes(saved()[:-1])
    assert "events.state" in refused(lambda: pk.State.load(path))
    assert "a folder" in refused(lambda: pk.State.load(tmp_path / "a folder"))


def test_a_pipe_is_refused_before_it_is_opened(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(lambda: pk.State.load(tmp_path / "pipe"))
    assert "not a regular file" in refused(lambda: pk.State.load(tmp_path))


# --- chunks ---------------------------------------------------------------------------------------------------


def chunks() -> dict[str, bytes]:
    return pk.State.from_bytes(saved()).chunks()


def test_a_state_is_put_together_again_from_its_chunks() -> None:
    assert pk.State.from_chunks(chunks()).to_bytes() == saved()


def test_chunks_that_were_swapped_are_found() -> None:
    first, second, *_ = sorted(chunks().keys() - {MANIFEST})
    swapped = chunks() | {first: chunks()[second], second: chunks()[first]}
    assert "does not match" in refused(lambda: pk.State.from_chunks(swapped))


def test_a_chunk_of_an_older_state_is_found() -> None:
    live = QUERY.open(state=saved())
    live.push(pa.record_batch({"t": [4], "k": ["b"], "v": [5]}))
    stale = next(
        name for name in live.state().changes(pk.State.from_bytes(saved())).written if "cells" in name
    )
    mixed = live.state().chunks() | {stale: chunks()[stale]}
    assert repr(stale) in refused(lambda: pk.State.from_chunks(mixed))


def test_missing_and_additional_chunks_are_found() -> None:
    for name in chunks():
        few = {other: data for other, data in chunks().items() if other != name}
        refused(lambda: pk.State.from_chunks(few))  # noqa: B023 - called at once
    assert "is not whole" in refused(lambda: pk.State.from_chunks(chunks() | {"more": b""}))


# --- states that somebody made up: every checksum is right --------------------------------------------------------


def forged(edit: Callable[[dict[str, pa.Table]], dict[str, pa.Table]]) -> bytes:
    state = pk.State.from_bytes(saved())
    query = QUERY.compiled().signature
    tables = edit(state.tables(query))
    return encode_file(query, {name: encode_table(table) for name, table in tables.items()})


FORGERIES: dict[str, Callable[[dict[str, pa.Table]], dict[str, pa.Table]]] = {
    "nothing": lambda tables: {},
    "no marks": lambda tables: {k: v for k, v in tables.items() if not k.endswith("/marks")},
    "no metrics": lambda tables: {k: v for k, v in tables.items() if k != "metrics"},
    "no columns": lambda tables: {k: v.select([]) for k, v in tables.items()},
    "no rows": lambda tables: {k: v.slice(0, 0) for k, v in tables.items()},
    "texts for numbers": lambda tables: {
        k: v if "cells" not in k else v.set_column(0, "pane", pa.array(["x"] * len(v)))
        for k, v in tables.items()
    },
    "numbers for texts": lambda tables: {
        k: v if "cells" not in k else v.set_column(1, "key_0", pa.array(range(len(v)), pa.int64()))
        for k, v in tables.items()
    },
    "nulls for panes": lambda tables: {
        k: v if "cells" not in k else v.set_column(0, "pane", pa.nulls(len(v), pa.int64()))
        for k, v in tables.items()
    },
    "states of another width": lambda tables: {
        k: v if "cells" not in k else v.set_column(2, "state_0", pa.array([1] * len(v), pa.int8()))
        for k, v in tables.items()
    },
}


@pytest.mark.parametrize("edit", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_forged_state_with_the_wrong_tables_is_refused(edit) -> None:
    refused(lambda: QUERY.open(state=forged(edit)))


SESSIONS = (
    pk.stream("events", {"t": "int64", "k": "string", "v": "int64"}, time="t", sequence="v")
    .window(pk.session(5), by="k")
    .agg(m=pk.median("v"))
)
ROWS = {
    "row:t": pa.array(["x"]),
    "row:k": pa.array([3]),
    "row:v": pa.array([1], pa.int8()),
    "time": pa.array([1], pa.int8()),
    "place": pa.nulls(1, pa.int64()),
    "branch": pa.array([1], pa.int8()),
    "fresh": pa.array([1], pa.int8()),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_forged_state_with_the_wrong_rows_is_refused(name: str) -> None:
    live = SESSIONS.open()
    live.push(pa.record_batch({"t": [1], "k": ["a"], "v": [2]}))
    query = SESSIONS.compiled().signature
    tables = live.state().tables(query)
    (rows,) = (table for table in tables if table.endswith("/rows"))
    tables[rows] = tables[rows].set_column(tables[rows].column_names.index(name), name, ROWS[name])
    made_up = encode_file(query, {value: encode_table(table) for value, table in tables.items()})
    refused(lambda: SESSIONS.open(state=made_up))


MANIFESTS = [
    b"",
    b"[]",
    b"null",
    b'{"query": [], "chunks": []}',
    b'{"query": {}, "chunks": [1]}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("body", MANIFESTS, ids=lambda body: repr(body[:30]))
def test_a_forged_manifest_is_refused(body: bytes) -> None:
    head = _HEAD.pack(_MAGIC, STATE_VERSION, len(body)) + body
    assert "no readable manifest" in refused(
        lambda: pk.State.from_bytes(head + hashlib.sha256(head).digest())
    )


def test_a_chunk_that_is_no_arrow_stream_is_refused() -> None:
    made_up = encode_file(QUERY.compiled().signature, {"metrics": b"no arrow"})
    assert "no well-formed Arrow stream" in refused(lambda: QUERY.open(state=made_up))


def test_the_manifest_names_neither_rows_nor_literals() -> None:
    query = QUERY.filter(pk.col("k") == SECRET)
    manifest = query.open().state().chunks()[MANIFEST]
    assert SECRET.encode() not in manifest
    assert json.loads(manifest[_HEAD.size : -32])["query"].keys() == query.compiled().signature.keys()
