"""Signals made up by Hypothesis: small streams of whole ticks, and programs over one or two of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

import penstock as pk

Build = Callable[[list[pk.Signal]], pk.Signal]

TIMES = st.integers(-12, 24)
VALUES = st.one_of(
    st.none(),
    st.sampled_from([0.0, -0.0, 1.0, -2.5, 3.0, float("inf"), float("nan")]),
    st.floats(-9, 9, width=16),
)


@dataclass
class Case:
    """Tables by the name of their stream, the signal over them, and how it was made."""

    tables: dict[str, pa.Table]
    signal: pk.Signal
    text: str


@st.composite
def tables(draw: st.DrawFn, keyed: bool, ends: bool) -> pa.Table:
    rows = draw(
        st.lists(st.tuples(TIMES, st.sampled_from(["a", "b", None]), VALUES, st.integers(-1, 9)), max_size=9)
    )
    columns = {
        "t": pa.array([row[0] for row in rows], pa.int64()),
        "v": pa.array([row[2] for row in rows], pa.float64()),
    }
    if keyed:
        columns["k"] = pa.array([row[1] for row in rows], pa.string())
    if ends:
        columns["e"] = pa.array([row[0] + row[3] if row[3] >= 0 else None for row in rows], pa.int64())
    return pa.table(columns)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    keyed = draw(st.booleans())
    count = draw(st.integers(1, 2))
    bound: dict[str, pa.Table] = {}
    signals: list[pk.Signal] = []
    texts: list[str] = []
    for place in range(count):
        how = draw(st.sampled_from(["next", "next", "lasting", "interval"]))
        table = draw(tables(keyed, how == "interval"))
        name = f"s{place}"
        bound[name] = table
        options: dict[str, object] = {"by": "k"} if keyed else {}
        if how == "lasting":
            options["lasting"] = draw(st.integers(1, 6))
        if how == "interval":
            options["interval"] = ("t", "e")
        if how == "interval" or draw(st.booleans()):
            options["resolve"] = draw(st.sampled_from(["last", "first", "sum", "max", "min", "mean"]))
        signals.append(pk.from_arrow(table, time="t", name=name).signal("v", **options))
        texts.append(f"{name}.signal{options}")
    made, text = draw(trees(signals, texts, depth=draw(st.integers(0, 3))))
    read = made.to_stream().names
    return Case({name: bound[name] for name in read}, made, text)


@st.composite
def regular_cases(draw: st.DrawFn) -> Case:
    """Samples at every so many ticks: most programs over them need no times at all."""
    count = draw(st.integers(1, 2))
    every = pk.every(draw(st.integers(1, 3)), start=draw(st.integers(-6, 6)))
    bound: dict[str, pa.Table] = {}
    signals: list[pk.Signal] = []
    for place in range(count):
        values = draw(st.lists(VALUES, max_size=30))
        name = f"s{place}"
        bound[name] = pa.table({"v": pa.array(values, pa.float64())})
        signals.append(pk.from_arrow(bound[name], time=every, name=name).signal("v"))
    programs = draw(st.sampled_from([trees, moved]))
    made, text = draw(programs(signals, list(bound), depth=draw(st.integers(0, 3))))
    read = made.to_stream().names
    return Case({name: bound[name] for name in read}, made, f"{every} {text}")


@st.composite
def trees(draw: st.DrawFn, leaves: list[pk.Signal], texts: list[str], depth: int) -> tuple[pk.Signal, str]:
    if depth == 0:
        place = draw(st.integers(0, len(leaves) - 1))
        return leaves[place], texts[place]
    inner, text = draw(trees(leaves, texts, depth - 1))
    kind = draw(
        st.sampled_from(["unary", "binary", "rolling", "window", "per", "in time", "feedback", "weighted"])
    )
    if kind == "binary":
        other, other_text = draw(trees(leaves, texts, depth - 1))
        name, build = draw(st.sampled_from(BINARY))
        return build(inner, other), f"{name}({text}, {other_text})"
    if kind == "unary":
        name, build = draw(st.sampled_from(UNARY))
        return build(inner), f"{name}({text})"
    if kind == "feedback":
        name, build = draw(st.sampled_from(FEEDBACK))
        return build(inner), f"{name}({text})"
    size, step = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    if kind == "in time":
        shift = draw(st.integers(-4, 7))
        gap = draw(st.one_of(st.none(), st.integers(1, 6)))
        name, build = draw(
            st.sampled_from(
                [
                    (f"shift {shift}", lambda s: s.shift(shift)),
                    (f"linear {step} {gap}", lambda s: s.resample(every=step, max_gap=gap)),
                    (f"last {step} {gap}", lambda s: s.resample(every=step, method="last", max_gap=gap)),
                    (f"mean {step}", lambda s: s.resample(every=step, method="mean")),
                    (f"chop {step}", lambda s: s.chop(step)),
                ]
            )
        )
        return build(inner), f"{name}({text})"
    spanned = {
        "rolling": inner.rolling(draw(st.sampled_from([size, pk.rows(step)]))),
        "window": inner.window(size, every=step),
        "per": inner.per(size),
        "weighted": draw(
            st.sampled_from([inner.rolling(size), inner.window(size, every=step), inner.per(size)])
        ),
    }[kind]
    reductions = ["integral", "time_mean"] if kind == "weighted" else REDUCTIONS
    function = draw(st.sampled_from(reductions))
    made = getattr(spanned, function)()
    floating = made if pa.types.is_float64(made.values.types[0]) else made.cast("float64")
    return floating, f"{kind} {size} {step} {function}({text})"


@st.composite
def moved_cases(draw: st.DrawFn) -> Case:
    """Signals that begin before or after what they are made of, from streams of any lateness."""
    keyed, lateness = draw(st.booleans()), draw(st.sampled_from([None, 0, 1, 5, 100]))
    bound: dict[str, pa.Table] = {}
    signals: list[pk.Signal] = []
    texts: list[str] = []
    for place in range(draw(st.integers(1, 2))):
        how = draw(st.sampled_from(["next", "lasting", "interval"]))
        name = f"s{place}"
        bound[name] = draw(tables(keyed, how == "interval"))
        options: dict[str, object] = {"by": "k"} if keyed else {}
        if how == "lasting":
            options["lasting"] = draw(st.integers(1, 6))
        if how == "interval":
            options |= {"interval": ("t", "e"), "resolve": "last"}
        stream = pk.from_arrow(bound[name], time="t", name=name, lateness=lateness)
        signals.append(stream.signal("v", **options))
        texts.append(f"{name}.signal{options}")
    made, text = draw(moved(signals, texts, depth=draw(st.integers(1, 4))))
    read = made.to_stream().names
    return Case({name: bound[name] for name in read}, made, f"lateness {lateness}: {text}")


@st.composite
def moved(draw: st.DrawFn, leaves: list[pk.Signal], texts: list[str], depth: int) -> tuple[pk.Signal, str]:
    """Operators that move the beginning or the end of a signal, one behind the other."""
    if depth == 0:
        place = draw(st.integers(0, len(leaves) - 1))
        return leaves[place], texts[place]
    inner, text = draw(moved(leaves, texts, depth - 1))
    if draw(st.integers(0, 5)) == 0:
        other, other_text = draw(moved(leaves, texts, draw(st.integers(0, depth - 1))))
        name, combine = draw(st.sampled_from(BINARY))
        return combine(inner, other), f"{name}({text}, {other_text})"
    name, build = draw(st.sampled_from(MOVING))
    number = draw(st.integers(1, 8))
    return build(inner, number), f"{name} {number}({text})"


MOVING: list[tuple[str, Callable[[pk.Signal, int], pk.Signal]]] = [
    ("later", lambda s, n: s.shift(n)),
    ("earlier", lambda s, n: s.shift(-n)),
    ("or", lambda s, n: s.or_else(float(n))),
    ("or later", lambda s, n: s.shift(n).or_else(7.0)),
    ("positive", lambda s, n: s.where(lambda v: v > 0)),
    ("const", lambda s, n: s.map(lambda v: pk.when(v.is_null()).then(1.0).otherwise(2.0))),
    ("linear", lambda s, n: s.resample(every=n)),
    ("linear max_gap", lambda s, n: s.resample(every=n, max_gap=2 * n)),
    ("last", lambda s, n: s.resample(every=n, method="last")),
    ("chop", lambda s, n: s.chop(n)),
    ("per", lambda s, n: s.per(n).sum()),
    ("per time", lambda s, n: s.per(n).time_mean()),
    ("window", lambda s, n: s.window(2 * n, every=n).sum()),
    ("rolling", lambda s, n: s.rolling(n).count().cast("float64")),
    ("rows", lambda s, n: s.rolling(pk.rows(n)).sum()),
    ("smooth", lambda s, n: pk.feedback(lambda y: y * 0.5 + s)),
]

REDUCTIONS = ["sum", "mean", "min", "max", "count", "std", "first", "last", "median", "count_distinct"]

UNARY: list[tuple[str, Callable[[pk.Signal], pk.Signal]]] = [
    ("double", lambda s: s * 2.0),
    ("neg", lambda s: -s),
    ("positive", lambda s: s.where(lambda v: v > 0)),
    ("or 7", lambda s: s.or_else(7.0)),
    ("const", lambda s: s.map(lambda v: pk.when(v.is_null()).then(1.0).otherwise(2.0))),
    ("choose", lambda s: pk.when(s > 1.0).then(s).otherwise(0.5)),
]
BINARY: list[tuple[str, Callable[[pk.Signal, pk.Signal], pk.Signal]]] = [
    ("sub", lambda a, b: a - b),
    ("greater", lambda a, b: (a > b).cast("float64")),
    ("both", lambda a, b: ((a > 0.0) & (b > 0.0)).cast("float64")),
    ("or", lambda a, b: a.or_else(b)),
    ("where", lambda a, b: a.where(b > 0.0)),
    ("aligned", lambda a, b: pk.align(a=a, b=b)["a"]),
]
FEEDBACK: list[tuple[str, Callable[[pk.Signal], pk.Signal]]] = [
    ("smooth", lambda s: pk.feedback(lambda y: y * 0.5 + s)),
    ("two back", lambda s: pk.feedback(lambda y: s - y[2] * 0.25 + y.shift(3) * 0.5, initial=1.0)),
]
