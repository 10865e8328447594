"""Whatever is handed to a verb, what is raised is an error of ours, on the line where it was written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import penstock as pk

TABLE = pa.table({"ts": pa.array([0, 1], pa.timestamp("us")), "k": ["a", "b"], "v": [1, 2]})
E = pk.from_arrow(TABLE, time="ts", name="e")
W = E.window("1s").agg(n=pk.count())
E2 = pk.from_arrow(TABLE.rename_columns(["ts2", "k", "v2"]), time="ts2", name="e2")
W2 = E2.window("1s").agg(n2=pk.count())
S = pk.from_arrow(pa.table({"t": [0, 1], "v": [1, 2]}), time="t").signal("v")
V, K, T = pk.col("v"), pk.col("k"), pk.col("ts")
N = pk.count()
OWN = pk.aggregate(0, lambda s, x: s + x, lambda s: s)

JUNK: dict[str, object] = {
    "None": None,
    "number": 3,
    "negative": -1,
    "float": 2.5,
    "NaN": float("nan"),
    "big": 2**70,
    "bool": True,
    "empty text": "",
    "text": "nope",
    "bytes": b"x",
    "list": [],
    "names": ["a", "nope"],
    "nulls": [None],
    "dict": {},
    "tuple": (),
    "object": object(),
    "function": lambda x: x,
    "module": pk,
    "class": int,
    "date": date(2026, 1, 1),
    "no time": timedelta(0),
    "past": timedelta(-1),
    "column": pk.col("v"),
    "no column": pk.col("nope"),
    "decimal": Decimal(1),
    "huge": 10**400,
    "half a character": "\ud800",
    "NumPy's length": np.timedelta64(1, "s"),
    "Arrow's number": pa.scalar(3),
    "Arrow's column": pa.array([1]),
    "NumPy's array": np.array([1, 2]),
    "pandas' missing value": pd.NA,
    "a pandas frame": pd.DataFrame({"a": [1]}),
    "a Polars frame": pl.DataFrame({"a": [1]}),
}

VERBS: dict[str, Callable[[object], object]] = {
    **{
        f"from_arrow {name}": lambda j, name=name: pk.from_arrow(TABLE, **{"time": "ts", name: j})
        for name in ("time", "sequence", "lateness", "unit", "on_bad", "late_to", "idle_after", "name")
    },
    "scan": lambda j: pk.scan(j, time="ts"),
    "scan_stream": lambda j: pk.scan_stream(j, time="ts"),
    "scan_stream max_files": lambda j: pk.scan_stream(
        ".", schema=TABLE.schema, time="ts", format="csv", max_files=j
    ),
    "scan a path that is too long": lambda j: pk.scan(str(j)[:1] + "x" * 9_999, time="ts"),
    "from_arrow": lambda j: pk.from_arrow(j, time="ts"),
    "scan_kafka servers": lambda j: pk.scan_kafka(j, "clicks", TABLE.schema, time="ts"),
    "scan_kafka topic": lambda j: pk.scan_kafka("localhost:1", j, TABLE.schema, time="ts"),
    "sql streams": lambda j: pk.sql("select v from e", j),
    "state with a zero": lambda j: W.open(state=f"{j}\0"),
    "delta_sink": lambda j: pk.delta_sink(j, "views"),
    "stream schema": lambda j: pk.stream("s", {"t": j}, time="t"),
    "every": pk.every,
    "filter": E.filter,
    "select": E.select,
    "with_columns": lambda j: E.with_columns(z=j),
    "drop": E.drop,
    "rename": E.rename,
    "distinct": E.distinct,
    "distinct within": lambda j: E.distinct("k", within=j),
    "top_k": lambda j: W.top_k(j, by="n"),
    "top_k by": lambda j: W.top_k(1, by=j),
    "window": lambda j: E.window(j).agg(n=N),
    "window by": lambda j: E.window("1s", by=j).agg(n=N),
    "every of windows": lambda j: E.window("1s", every=j).agg(n=N),
    "offset": lambda j: E.window("1s", offset=j).agg(n=N),
    "tz": lambda j: E.window("1d", tz=j).agg(n=N),
    "session": lambda j: E.window(pk.session(j)).agg(n=N),
    "rows": lambda j: E.window(pk.rows(j)).agg(n=N),
    "agg": lambda j: E.window("1s").agg(j),
    "sum": lambda j: E.window("1s").agg(z=pk.sum(j)),
    "quantile": lambda j: E.window("1s").agg(z=pk.quantile("v", j)),
    "rolling": lambda j: E.rolling(j).agg(n=N),
    "rolling several": lambda j: E.rolling(["1s", j]).agg(n=N),
    "rolling delay": lambda j: E.rolling("1s", delay=j).agg(n=N),
    "is_in": lambda j: E.filter(V.is_in(j)),
    "round": lambda j: E.select(z=V.round(j)),
    "clip": lambda j: E.select(z=V.clip(j, 3)),
    "log": lambda j: E.select(z=V.log(j)),
    "cast": lambda j: E.select(z=V.cast(j)),
    **{
        f"str.{name}": lambda j, name=name: E.select(z=getattr(K.str, name)(j))
        for name in (
            "contains",
            "starts_with",
            "strip_chars",
            "strip_prefix",
            "head",
            "slice",
            "zfill",
            "concat",
        )
    },
    "str.replace": lambda j: E.select(z=K.str.replace(j, "x")),
    "str.replace by": lambda j: E.select(z=K.str.replace_all("x", j)),
    "dt.truncate": lambda j: E.select(z=T.dt.truncate(j)),
    "dt.round": lambda j: E.select(z=T.dt.round(j)),
    "dt.round of text": lambda j: E.select(z=K.dt.round(j)),
    "str.strptime": lambda j: E.select(z=K.str.strptime(j)),
    "str.strptime format": lambda j: E.select(z=K.str.strptime("date", j)),
    "dt.epoch": lambda j: E.select(z=T.dt.epoch(j)),
    "dt.strftime": lambda j: E.select(z=T.dt.strftime(j)),
    "dt.offset_by": lambda j: E.select(z=T.dt.offset_by(j)),
    "dt.convert_time_zone": lambda j: E.select(z=T.dt.convert_time_zone(j)),
    "dt.replace_time_zone": lambda j: E.select(z=T.dt.replace_time_zone(j)),
    "dt.cast_time_unit": lambda j: E.select(z=T.dt.cast_time_unit(j)),
    "str.extract": lambda j: E.select(z=K.str.extract(j)),
    "str.extract group": lambda j: E.select(z=K.str.extract("(a)", j)),
    "str.find": lambda j: E.select(z=K.str.find(j)),
    "str.contains_any": lambda j: E.select(z=K.str.contains_any(j)),
    "str.to_datetime": lambda j: E.select(z=K.str.to_datetime(j)),
    "join": lambda j: E.join(j, on="k", window="1s"),
    "join on": lambda j: E.join(E, on=j, window="1s"),
    "join within": lambda j: E.join(E, on="k", within=("0s", j)),
    "tolerance": lambda j: E.join_asof(E, by="k", tolerance=j),
    "then": lambda j: E.then(j, at=date(2026, 1, 1)),
    "head": W.head,
    "engine": lambda j: W.collect(engine=j),
    "metrics": lambda j: W.collect(metrics=j),
    "threads": lambda j: pk.Engine(threads=j),
    "task_bytes": lambda j: pk.Engine(task_bytes=j),
    "devices": lambda j: pk.Engine(devices=j),
    **{
        f"Engine {name}": lambda j, name=name: pk.Engine(**{name: j})
        for name in ("scheduler", "adaptive", "backend", "aggregator")
    },
    "explain": E.explain,
    **{
        f"join {name}": lambda j, name=name: E.join(E2, **{"on": "k", "window": pk.tumbling("1s"), name: j})
        for name in ("how", "algorithm", "window", "on", "suffix", "where")
    },
    "join without a window": lambda j: W.join(W2, window=j),
    "rolling closed": lambda j: E.rolling("1s", closed=j),
    "distinct keep": lambda j: E.distinct("k", keep=j),
    "top_k ties": lambda j: W.top_k(1, by="n", ties=j),
    "windows by": lambda j: W.window(by=j),
    "between closed": lambda j: V.between(1, 2, closed=j),
    "scan format": lambda j: pk.scan(__file__, time="ts", format=j),
    "resample method": lambda j: S.resample(every=1, method=j),
    "signal resolve": lambda j: E.signal("v", resolve=j),
    "a state's query": lambda j: pk.State(j, {}),
    "changes of a state": lambda j: W.open().state().changes(j),
    "push": lambda j: W.open().push(j),
    "run": lambda j: list(W.run(j)),
    "collect": W.collect,
    "state": lambda j: W.open(state=j),
    "interval": lambda j: E.signal("v", interval=("ts", j)),
    "scan_stream poll": lambda j: pk.scan_stream("*.csv", time="t", poll=j),
    **{
        f"scan_kafka {name}": lambda j, name=name: pk.scan_kafka(
            "localhost:1", "clicks", TABLE.schema, time="ts", **{name: j}
        )
        for name in ("max_rows", "options", "value_schema", "stop_after")
    },
    "quarantine_to": lambda j: pk.from_arrow(TABLE, time="ts", on_bad="quarantine", quarantine_to=j),
    "storage_options": lambda j: pk.delta_sink("table", "views", storage_options=j),
    "join left_on": lambda j: E.join(E, left_on=j, right_on="k", window="1s"),
    "data by name": lambda j: W.collect({j: TABLE} if getattr(j, "__hash__", None) else j),
    "final": lambda j: list(W.run(TABLE.to_batches(), final=j)),
    "commutative": lambda j: pk.aggregate(0, lambda s, x: s + x, lambda s: s, commutative=j),
    **{
        f"check_aggregate {name}": lambda j, name=name: pk.check_aggregate(
            OWN, [1, 2], **{"samples": 2, name: j}
        )
        for name in ("samples", "seed", "tolerance")
    },
    "str.to_date": lambda j: E.select(z=K.str.to_date(j)),
    "str.to_date strict": lambda j: E.select(z=K.str.to_date(strict=j)),
    "State.from_bytes": pk.State.from_bytes,
    "State.from_chunks": pk.State.from_chunks,
    "Metrics.update": lambda j: pk.Metrics().update(j),
    "streaming_problem": pk.streaming_problem,
    "to_stream": S.to_stream,
    "prev": lambda j: pk.feedback(lambda prev: prev[j] + S),
    "prev.shift": lambda j: pk.feedback(lambda prev: prev.shift(j) + S),
    "shift": S.shift,
    "feedback": lambda j: pk.feedback(lambda prev: prev + S, initial=j),
}


@pytest.mark.parametrize("verb", VERBS)
def test_junk_is_refused_in_our_words_or_makes_sense(verb: str) -> None:
    strange = []
    for name, junk in JUNK.items():
        try:
            VERBS[verb](junk)
        except pk.PenstockError:
            pass
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            strange.append((name, type(error).__name__, str(error)))
    assert strange == []


class NoSpark:
    """Enough of a session for arguments to be looked at."""

    createDataFrame = None


# What was given, to what, and what to write instead.
SAID: dict[str, tuple[Callable[[], object], str]] = {
    "idle_after": (
        lambda: pk.from_arrow(TABLE, time="ts", idle_after=5),
        "idle_after is the bare number 5, which has no unit; give a duration such as '5s'",
    ),
    "poll": (
        lambda: pk.scan_stream("*.csv", time="t", schema=TABLE.schema, format="csv", poll=-3),
        "poll is the bare number -3, which has no unit; give a duration such as '3s'",
    ),
    "on": (
        lambda: E.join(E, on=5, window="1s"),
        "on= takes names of columns, such as on='k' or on=['a', 'b'], not 5",
    ),
    "left_on": (
        lambda: E.join(E, left_on="k", right_on=[["k"], 5], window="1s"),
        "right_on= takes names of columns, such as right_on='k' or right_on=['a', 'b'], not a list",
    ),
    "by": (
        lambda: E.window("1s", by=lambda row: row).agg(n=N),
        "by= takes names of columns, such as by='k' or by=['a', 'b'], not a function",
    ),
    "sequence": (
        lambda: pk.from_arrow(TABLE, time="ts", sequence=["k"]),
        "sequence= names a column, but it is a list; write sequence='number'",
    ),
    "final": (lambda: W.run(TABLE.to_batches(), final="no"), "final is 'no'; it is True or False"),
    "max_rows": (
        lambda: pk.scan_kafka("localhost:1", "clicks", TABLE.schema, time="ts", max_rows="many"),
        "max_rows is 'many'; it is a whole number from 1 to 2,147,483,647",
    ),
    "options": (
        lambda: pk.scan_kafka("localhost:1", "clicks", TABLE.schema, time="ts", options={"a": 1}),
        "options is a dict; it is a mapping of texts, such as {'group.id': 'clicks'}",
    ),
    "data": (lambda: W.collect({1: TABLE}), "this query reads no stream 1 (streams: 'e')"),
    "prev": (
        lambda: pk.feedback(lambda prev: prev["no"] + S),
        "prev['no'] is not in the past; prev[1] is the previous result",
    ),
    "to_stream": (lambda: S.to_stream(5), "to_stream takes a name for the value, not 5"),
    "tasks": (
        lambda: W.to_spark(NoSpark(), tasks=0),
        "tasks must be at least 1, and a whole number, not 0",
    ),
    "master": (lambda: pk.spark_session(2), "master is 2; it is a text, such as 'local[2]'"),
    "config": (
        lambda: pk.spark_session(config=["a"]),
        "config is a list; it is a mapping of settings, such as {'spark.executor.memory': '4g'}",
    ),
}


@pytest.mark.parametrize("argument", SAID)
def test_a_wrong_argument_is_told_by_its_name_with_what_to_write(argument: str) -> None:
    call, message = SAID[argument]
    with pytest.raises(pk.PenstockError) as raised:
        call()
    assert message in str(raised.value)
