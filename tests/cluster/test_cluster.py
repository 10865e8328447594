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


@pytest.fixture(scope="module")
def few(drive: Callable[..., Results]) -> Results:
    return drive(FEW, True)


@pytest.mark.parametrize("name", FEW)
def test_a_query_on_the_cluster_gives_the_answer_of_this_process(few: Results, name: str) -> None:
    assert_same(expected(name.split("/", maxsplit=1)[0]), few[name], name)


def test_executors_without_penstock_are_one_clear_line(few: Results) -> None:
    told = few.report["unshipped"]
    assert told.startswith(
        "executors cannot import Penstock (No module named 'penstock'): call pk.ship(spark)"
    )
    assert "\n" not in told


def test_every_executor_has_the_shipped_penstock_and_reaches_the_files(
    few: Results, location: dict[str, str]
) -> None:
    path = location["ordered"]
    assert few.report["executors"] == 2 * [
        [pk.__version__, None, {path: "writable", path + "/none": "missing"}]
    ]


def test_a_stream_of_files_needs_the_archive_alone(few: Results) -> None:
    """Its source is planned by a Python beside the driver, which has no packages either."""
    assert_same(streamed(), few["stream"], "stream")


def test_a_setting_that_harms_streams_is_named_once(few: Results) -> None:
    (told,) = few.report["warnings"]
    assert "verifyCheckpointDirectoryEmptyOnStart is true" in told


@pytest.mark.campaign
def test_a_session_that_starts_with_the_archive_needs_nothing_else(
    drive: Callable[..., Results], cluster: Cluster, archive: Path
) -> None:
    settings = {**cluster.settings, "spark.archives": f"{archive}#penstock"}
    check(drive(FEW, True, ship=False, settings=settings), FEW)


@pytest.mark.campaign
def test_a_connect_session_is_shipped_to_alike(drive: Callable[..., Results], cluster: Cluster) -> None:
    some = tuple(name for name in FEW if not name.endswith("format"))
    with connect_server(cluster) as address:
        found = drive(some, True, master=address, settings={})
    check(found, some)
    assert found.report["unshipped"].startswith("executors cannot import Penstock")


def check(found: Results, names: Sequence[str]) -> None:
    for name in names:
        assert_same(expected(name.split("/")[0]), found[name], name)
    assert_same(streamed(), found["stream"], "stream")


@pytest.mark.campaign
def test_all_kinds_of_queries_give_the_answers_of_this_process(
    drive: Callable[..., Results],
) -> None:
    every = drive(ALL, False)
    for name in ALL:
        assert_same(expected(name.split("/")[0]), every[name], name)
