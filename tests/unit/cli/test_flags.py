"""Flags from signatures."""

from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Optional

import pytest

from penstock.cli.guard import CommandError
from penstock.cli.load import call_with_flags


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def everything(
    at: datetime,
    price: Decimal,
    folder: Path,
    colour: Colour,
    every: timedelta,
    sizes: list[int],
    plain,
    ratio: float = 0.5,
    maybe: Optional[int] = None,  # noqa: UP045 - the old spelling must work too
    **rest: int,
):
    return dict(locals())


GIVEN = {
    "--at": "2026-01-02T03:04:05+00:00",
    "--price": "1.10",
    "--folder": "a/b",
    "--colour": "blue",
    "--every": "1h30m",
    "--plain": "7",
    "--maybe": "3",
}


def test_each_type_is_read_as_its_annotation_says():
    flags = [part for pair in GIVEN.items() for part in pair]
    assert call_with_flags(everything, [*flags, "--sizes", "1", "2"], "q.py:f") == {
        "at": datetime.fromisoformat(GIVEN["--at"]),
        "price": Decimal("1.10"),
        "folder": Path("a/b"),
        "colour": Colour.BLUE,
        "every": timedelta(hours=1.5),
        "sizes": [1, 2],
        "plain": "7",
        "ratio": 0.5,
        "maybe": 3,
        "rest": {},
    }


def test_underscores_become_dashes():
    def query(first_day: int = 1):
        return first_day

    assert call_with_flags(query, ["--first-day", "5"], "q") == 5


def test_flags_may_not_be_abbreviated():
    def query(first_day: int = 1):
        return first_day

    with pytest.raises(CommandError, match="unrecognized arguments"):
        call_with_flags(query, ["--first", "5"], "q")


def no_reader(x: dict[str, int]):
    return x


def positional(x: int, /):
    return x


@pytest.mark.parametrize(
    ("function", "message"), [(no_reader, "no flag can be read"), (positional, "positional-only")]
)
def test_arguments_that_no_flag_can_set_are_named(function, message):
    with pytest.raises(CommandError, match=message):
        call_with_flags(function, [], "q")


def test_what_is_no_duration_is_named():
    def query(every: timedelta):
        return every

    with pytest.raises(CommandError, match="'soon' is not a valid timedelta"):
        call_with_flags(query, ["--every", "soon"], "q.py:f")
