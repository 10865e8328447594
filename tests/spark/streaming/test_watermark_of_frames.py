"""The delay of a DataFrame's own watermark is the lateness of its stream."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as pk
from penstock.plan.schema import sources_of


def _rates(spark: Any) -> Any:
    return spark.readStream.format("rate").load()


def _lateness(stream: pk.Stream) -> int:
    return sources_of(stream.plan)[0].lateness


def test_the_watermark_of_a_streaming_dataframe_is_taken_over(spark: Any) -> None:
    delayed = _rates(spark).withWatermark("timestamp", "7 seconds").filter("value > 3")
    assert _lateness(pk.from_spark(delayed, time="timestamp")) == 7_000_000


@pytest.mark.parametrize(("lateness", "ticks"), [("2s", 2_000_000), ("0s", 0)])
def test_what_is_said_here_counts_more(spark: Any, lateness: str, ticks: int) -> None:
    delayed = _rates(spark).withWatermark("timestamp", "7 seconds")
    assert _lateness(pk.from_spark(delayed, time="timestamp", lateness=lateness)) == ticks


def test_a_dataframe_without_a_watermark_has_no_lateness(spark: Any) -> None:
    assert _lateness(pk.from_spark(_rates(spark), time="timestamp")) == 0
