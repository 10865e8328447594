"""Whatever is handed to a verb, what is raised is an error of ours, on the line where it was written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk

TABLE = pa.table({"ts": pa.array([0, 1], pa.timestamp("us")), "k": ["a", "b"], "v": [1, 2]})
E = pk.from_arrow(TABLE, time="ts", name="e")
W = E.window("1s").agg(n=pk.count())
S = pk.from_arrow(pa.table({"t": [0, 1], "v": [1, 2]}), time="t").signal("v")
V, K, T = pk.col("v"), pk.col("k"), pk.col("ts")
N = pk.count()

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
    "state": lambda j: W.open(state=j),
    "interval": lambda j: E.signal("v", interval=("ts", j)),
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
