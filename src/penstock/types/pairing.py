"""Join kinds and pairings, shared by the logical plan and the time-centric IR."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.types.windows import Calendar, TimeWindow, Window

JOIN_TIME = "join_time"
JOIN_KINDS = ("inner", "left", "right", "full", "semi", "anti")
DIRECTIONS = ("backward", "forward", "nearest")
ALGORITHMS = ("auto", "npj", "prj", "mway", "mpass", "shj_jm", "shj_jb", "pmj_jm", "pmj_jb")
TARGETS = ("throughput", "latency", "progress")
LEFT_ROW_KINDS = ("semi", "anti")  # these return left rows unchanged

Keys = tuple[tuple[str, str], ...]  # pairs of equal columns: left name, right name


@dataclass(frozen=True, slots=True)
class Within:
    """The right row's time minus the left row's lies in [lo, hi], both ends included."""

    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class Lookup:
    """One side is a table without time; every row of the other is matched against all of it. `table` is 0 (left) or 1."""

    table: int


@dataclass(frozen=True, slots=True)
class InWindow:
    """Both rows lie in windows that end at the same time."""

    left: Window
    right: Window


Pairing = InWindow | Within | Lookup


def windows_overlap(pairing: InWindow) -> bool:
    """Whether a row may lie in several windows of a join."""
    match pairing.left, pairing.right:
        case TimeWindow() as left, TimeWindow() as right:
            return left != right or left.size > left.every
        case Calendar(size=size, every=every), _:
            return size != every
        case _:
            return False


def left_column(name: str) -> str:
    """Return the name of a left column in a pair of rows; no right column can have that name."""
    return f"left.{name}"


def right_column(name: str) -> str:
    """Return the name of a right column in a pair of rows."""
    return f"right.{name}"
