"""What saved state is compared by: every change is named, and no constant of the user is in it."""

from typing import Any

import pytest

import penstock as pk
from penstock import col

E = pk.stream("e", {"t": "timestamp[us]", "k": "int64", "j": "string", "v": "int64"}, time="t")
F = pk.stream("f", {"t2": "timestamp[us]", "k": "int64", "j": "string", "v": "int64"}, time="t2")


def totals(events: Any = E, size: Any = "10s", by: Any = "k", **aggregates: Any) -> Any:
    return events.window(size, by=by).agg(**(aggregates or {"total": pk.sum("v")}))


def twice(factor: int) -> Any:
    return pk.aggregate(init=0.0, add=lambda s, x: s + x * factor, result=lambda s: s)("v")


CONSTANT = r"a constant in ~\w+ is another"
CHANGES: dict[str, tuple[Any, Any, str]] = {
    "a window's size": (totals(), totals(size="20s"), "was size 10s every 10s and is size 20s every 20s"),
    "a window's kind": (totals(), totals(size=pk.session("5s")), "and is sessions with a gap of 5s"),
    "windows of rows": (totals(), totals(size=pk.rows(5)), "and is size 5 rows every 5 rows"),
    "a further aggregate": (totals(), totals(total=pk.sum("v"), n=pk.count()), r"further results: n: count\(\)"),
    "one less": (totals(total=pk.sum("v"), n=pk.count()), totals(), r"has lost results: n: count\(\)"),
    "an option": (totals(q=pk.quantile("v", 0.5)), totals(q=pk.quantile("v", 0.9)), r"quantile\(v, 0.9\)"),
    "a further key": (totals(), totals(by=["k", "j"]), "has further keys: j"),
    "a filter": (totals(), totals(E.filter(col("v") > 3)), r"the filter of ~\w+ was none and is v > \?"),
    "a filter's constant": (totals(E.filter(col("v") > 3)), totals(E.filter(col("v") > 4)), CONSTANT),
    "a list of constants": (
        totals(E.filter(col("j").is_in(["a"]))), totals(E.filter(col("j").is_in(["b"]))), CONSTANT,
    ),
    "a constant in an aggregate of one's own": (totals(x=twice(2)), totals(x=twice(3)), CONSTANT),
    "a condition on results": (totals(), totals().filter(col("total") > 3), r"was none and is sum\(v\) > \?"),
    "a look-back": (
        E.rolling("10s").agg(x=pk.sum("v")), E.rolling("20s").agg(x=pk.sum("v")), "t - 10s : t and now has t - 20s : t",
    ),
    "a join's key": (
        E.join(F, on="k", window=pk.tumbling("1s")), E.join(F, on="j", window=pk.tumbling("1s")),
        "had the keys k and now has j",
    ),
    "an interval": (
        E.join(F, on="k", within=("-1s", "1s")), E.join(F, on="k", within=("-2s", "1s")),
        "was from -1s to 1s and is from -2s to 1s",
    ),
    "a tolerance": (
        E.join_asof(F, by="k", tolerance="1s"), E.join_asof(F, by="k", tolerance="3s"), "tolerance of .* was 1s and is 3s",
    ),
    "a signal": (
        E.signal("v", by="k").rolling("10s").mean().to_stream("s"),
        E.signal("v", by="k").rolling("20s").mean().to_stream("s"),
        r"size 10s.* and is .*size 20s",
    ),
    "a top": (totals().top_k(3, by="total"), totals().top_k(4, by="total"), "was 3 and is 4"),
    "an order of steps": (
        E.distinct("k").filter(col("v") > 3), E.filter(col("v") > 3).distinct("k"), "saved by another query: .",
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_query_is_named(change: str) -> None:
    before, after, words = CHANGES[change]
    with pytest.raises(pk.StateError, match=words):
        after.open(state=before.open().state())
    with before.open(state=before.open().state()) as live:
        assert live.finish() == []


def test_no_constant_of_the_user_is_in_a_state() -> None:
    secret = col("j").is_in(["swordfish"]) & (col("j") != "hunter2") & col("j").str.contains("passw")
    query = totals(E.filter(secret), x=pk.count(where=col("j") == "sesame"))
    whole = query.open().state().to_bytes()
    assert [word for word in (b"swordfish", b"hunter2", b"passw", b"sesame") if word in whole] == []
