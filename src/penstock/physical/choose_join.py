"""Choose how a join finds its pairs: eager or lazy, by which algorithm, and whether conditions are searched."""

from __future__ import annotations

import pyarrow as pa

from penstock.algorithms.keyed_states.row_store import can_grow
from penstock.analysis.panes import reductions_obstacle
from penstock.expr.nodes import Expr
from penstock.ir import nodes as ir
from penstock.ir import nodes as jn
from penstock.physical.band_conditions import band_of
from penstock.physical.nodes import Assumption, Choice, Mode, Rejected
from penstock.types.windows import (
    LEFT_ROW_KINDS,
    CarriedWindow,
    InWindow,
    Lookup,
    Session,
    TimeWindow,
    Within,
    windows_overlap,
)

LAZY_ALGORITHMS = ("npj", "prj", "mway", "mpass")
LISTS, SORTED = "lists per key", "sorted partitions"
REASON_AT_REST = "data at rest comes in one push"
EAGER_ALGORITHMS = ("shj_jm", "shj_jb", "pmj_jm", "pmj_jb")

ALIKE = Assumption(
    "neither side has 16 times the rows of the other",
    "rows of the larger side whose key the smaller lacks are left out first",
)


def is_eager(body: ir.Body) -> bool:
    """Whether a join over unbounded input gives pairs as rows arrive: an eager algorithm, or a target it is best for."""
    match body:
        case jn.Join(pairing=InWindow(left=TimeWindow() as left, right=right)) if body.on and left == right:
            wanted = body.algorithm in EAGER_ALGORITHMS or (
                body.algorithm == "auto" and body.optimise != "throughput"
            )
            return wanted and left.size <= left.every
        case _:
            return False


def join_choices(body: jn.Join, left: ir.Object, right: ir.Object, mode: Mode) -> tuple[Choice, ...]:
    """List the choices of a join: when pairs leave, how they are found, and by which algorithm."""
    match body.pairing:
        case Lookup():
            return (Choice("matching", "lookup", "one side is a table: each row meets it as it arrives"),)
        case Within():
            reason = "right rows within the interval are a range of the key's rows"
            matching = Choice("matching", "interval ranges", reason)
            return matching, held_rows(left.schema, right.schema, body.where, mode)
        case InWindow() as pairing:
            eager = is_eager(body) and mode == "unbounded"
            # Sessions of different keys interleave; the rows of other windows are contiguous in time.
            held = (
                (held_rows(left.schema, right.schema, None, mode),)
                if isinstance(pairing.left, Session)
                else ()
            )
            return (
                *held,
                _emission(body, mode),
                *(() if eager else (_matching(body, pairing, left, right),)),
                _algorithm(body),
            )


def held_rows(left: pa.Schema, right: pa.Schema, where: Expr | None, mode: Mode) -> Choice:
    """Choose how rows are held: in lists per key between pushes, or sorted when results are due."""
    obstacle = _no_lists(left, right, where) if mode == "unbounded" else REASON_AT_REST
    if obstacle is not None:
        return Choice("held", SORTED, "rows are partitioned by key and sorted", (Rejected(LISTS, obstacle),))
    rejected = Rejected(SORTED, "each push would read every row held")
    return Choice("held", LISTS, "a push costs its rows and the results they complete", (rejected,))


def held_states(
    body: jn.RollingJoin, left: ir.Object, ready: ir.Object, right: ir.Object, mode: Mode
) -> Choice:
    """Choose how a rolling join holds right rows: in lists per key with one aggregate each, or sorted."""
    obstacle = _no_lists(left.schema, ready.schema, None) or reductions_obstacle(
        body.reductions, right.schema
    )
    if mode == "bounded":
        obstacle = REASON_AT_REST
    if obstacle is not None:
        return Choice("held", SORTED, "rows are partitioned by key and sorted", (Rejected(LISTS, obstacle),))
    reason = "right rows enter and leave the aggregate of their key in order of time"
    return Choice("held", LISTS, reason, (Rejected(SORTED, "each push would read every row held"),))


def _no_lists(left: pa.Schema, right: pa.Schema, where: Expr | None) -> str | None:
    """Why rows cannot be held in growing columns; None if they can."""
    for schema in (left, right):
        other = next((field.name for field in schema if not can_grow(field.type)), None)
        if other is not None:
            return f"column {other!r} is of type {schema.field(other).type}, which cannot grow in place"
        if where is not None and any(pa.types.is_dictionary(field.type) for field in schema):
            return "the condition may read a dictionary, and rows in lists are decoded"
    return None


def _emission(body: jn.Join, mode: Mode) -> Choice:
    if not is_eager(body):
        return Choice("emission", "lazy", "pairs of a window are found when it is complete")
    if mode == "bounded":
        reason = "bounded input is complete: no pair leaves earlier than its window"
        return Choice("emission", "lazy", reason, (Rejected("eager", reason),))
    return Choice("emission", "eager", "pairs leave as rows arrive, by the requested algorithm or target")


def _matching(body: jn.Join, pairing: InWindow, left: ir.Object, right: ir.Object) -> Choice:
    """How the pairs of small windows are found; large ones are handed to the algorithm."""
    band = None if body.where is None else band_of(body.where, left.schema, right.schema)
    if windows_overlap(pairing):
        reason = "windows overlap: each pair is found once and given for every window that holds both rows"
        return Choice("matching", "sliding ranges", reason)
    if band is not None and not body.on and not isinstance(pairing.left, CarriedWindow):
        return Choice(
            "matching", "band search", "the condition bounds a right column, which is sorted and searched"
        )
    if body.on:
        reason = "pairs of a key are ranges of its sorted rows"
        return Choice("matching", "sorted partitions", reason, (), () if body.how == "full" else (ALIKE,))
    return Choice("matching", "nested loops", "nothing but the window restricts the pairs")


def _algorithm(body: jn.Join) -> Choice:
    if body.how in LEFT_ROW_KINDS and body.algorithm == "auto":
        return Choice("algorithm", "existence", f"a {body.how} join gives left rows: one partner decides")
    if body.algorithm != "auto":
        return Choice("algorithm", body.algorithm, "requested")
    tree = Assumption(
        "the decision tree was trained on windows of this kind", "the tree decides for each window anew"
    )
    return Choice("algorithm", "auto", "chosen for each large window by a decision tree", (), (tree,))
