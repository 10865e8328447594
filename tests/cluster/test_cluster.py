"""A standalone cluster whose executors have no packages: Penstock is shipped, and every query gives the answer of `collect`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from tests.cluster.conftest import TABLE, Results
from tests.cluster.standalone import Cluster, connect_server
from tests.spark.agree import assert_same
from tests.spark.lakes import NAMES, join_queries, queries

FEW = (
    "tumbling/ordered/any",
    "rows/ordered/format",
    "sliding/shuffled/fragments",
    "function/shuffled/keys",
    "as of/ordered/any",
    "sessions/frame/any",
)
KINDS = tuple(join_queries(*2 * [pk.stream("e", TABLE.schema, time="ts", sequence="n")]))
ALL = (
    *(f"{name}/{where}/any" for name in NAMES for where in ("ordered", "shuffled", "frame")),
    *(f"{name}/{where}/any" for name in KINDS for where in ("ordered", "shuffled")),
)


def expected(kind: str) -> Any:
    streams = [pk.from_arrow(TABLE, time="ts", sequence="n", name=name) for name in ("events", "others")]
    return {**queries(streams[0]), **join_queries(*streams)}[kind].collect()


def streamed() -> pa.Table:
    stream = pk.from_arrow(TABLE, time="ts", sequence="n", name="events", lateness="1s")
    return pa.Table.from_batches(list(queries(stream)["tumbling"].run([TABLE], final=False)))


def test_penstock_is_shipped_to_executors_without_packages(
    drive: Callable[..., Results], location: dict[str, str]
) -> None:
    """One test, since workers of pytest share no cluster: every claim is a function below."""
    found = drive(FEW, True)
    require_one_clear_line(found.report["unshipped"])
    require_executors(found.report["executors"], location["ordered"])
    require_one_warning(found.report["warnings"])
    require_answers(found, FEW)
    assert_same(
        streamed(), found["stream"], "a stream, planned by a Python beside the driver without packages"
    )


def require_one_clear_line(reported: str) -> None:
    assert reported.startswith(
        "executors cannot import Penstock (No module named 'penstock'): call pk.ship(spark)"
    )
    assert "\n" not in reported


def require_executors(reported: Sequence[object], path: str) -> None:
    """Check that each of the two executors has this Penstock and reaches the files."""
    assert reported == 2 * [[pk.__version__, None, {path: "4 files", path + "/none": "missing"}]]


def require_one_warning(reported: Sequence[str]) -> None:
    (line,) = reported
    assert "verifyCheckpointDirectoryEmptyOnStart is true" in line


def require_answers(found: Results, names: Sequence[str]) -> None:
    for name in names:
        assert_same(expected(name.split("/")[0]), found[name], name)


@pytest.mark.campaign
def test_a_session_that_starts_with_the_archive_needs_nothing_else(
    drive: Callable[..., Results], cluster: Cluster, credentials: dict[str, str], archive: Path
) -> None:
    settings = {**cluster.settings, **credentials, "spark.archives": f"{archive}#penstock"}
    found = drive(FEW, True, ship=False, settings=settings)
    require_answers(found, FEW)
    assert_same(streamed(), found["stream"], "stream")


@pytest.mark.campaign
def test_a_connect_session_is_shipped_to_alike(
    drive: Callable[..., Results], cluster: Cluster, credentials: dict[str, str]
) -> None:
    """Streams and planned sources are left out: Spark gives the archives of a session to neither."""
    some = tuple(name for name in FEW if not name.endswith("format"))
    with connect_server(cluster, credentials) as address:
        found = drive(some, False, master=address, settings={})
    require_one_clear_line(found.report["unshipped"])
    require_answers(found, some)


@pytest.mark.campaign
def test_all_kinds_of_queries_give_the_answers_of_this_process(
    drive: Callable[..., Results],
) -> None:
    require_answers(drive(ALL, False), ALL)
