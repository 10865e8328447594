"""The stream: the query that users build with verbs, and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.api import row_verbs
from penstock.api.bind import flat
from penstock.api.explain import Explanation, explain, html
from penstock.api.join_verbs import JoinVerbs
from penstock.api.lazy_imports import collector, optional_module
from penstock.api.live_verbs import LiveVerbs
from penstock.api.names import Named, named, single_named, together
from penstock.api.relation_to_stream import fresh, fresh_columns, require_windows
from penstock.api.windowed import LookingBack, Windowed, keyed, look_back, windowed
from penstock.errors import BindingError, ExpressionTypeError
from penstock.plan.nodes import Plan
from penstock.plan.schema import schema_of
from penstock.sources.bound import Bound
from penstock.types.duration import Duration

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from penstock.api.signals.signal import Signal
    from penstock.compile import Compiled
    from penstock.runtime.engine import Engine
    from penstock.runtime.metrics import Metrics


class Stream(JoinVerbs, LiveVerbs):
    """A query over events: a source, or the result of verbs. Immutable; nothing runs until a method such as `collect` is called.

    >>> import pyarrow as pa, penstock as pk
    >>> events = pk.from_arrow(pa.table({"t": [1, 2, 12], "k": ["a", "b", "a"], "v": [3, 4, 5]}), time="t")
    >>> views = events.filter(pk.col("k") == "a").window(10).agg(n=pk.count())
    >>> views.collect().to_pydict()
    {'window_start': [0, 10], 'window_end': [10, 20], 'n': [1, 1]}
    """

    __slots__ = ("_compiled", "_data", "_metrics", "_named", "_plan", "bound")

    def __init__(self, plan: Plan, data: Mapping[str, Bound]) -> None:
        self._plan = plan
        self._named: Named | None = None
        self._data = dict(data)
        self._metrics: Metrics | None = None
        self._compiled: Compiled | None = None
        self.bound: dict[str, Bound] | None = None  # the data of all streams, once a run has checked it

    # Properties

    @property
    def plan(self) -> Plan:
        """The logical plan, with all streams named."""
        return self.named.plan

    @property
    def named(self) -> Named:
        """The plan, and the streams and tables it reads."""
        if self._named is None:
            self._named = named(self._plan)
        return self._named

    @property
    def raw_plan(self) -> Plan:
        """The plan under construction, in which streams may still be unnamed."""
        return self._plan

    @property
    def raw_data(self) -> Mapping[str, Bound]:
        """The bound data, under placeholder names for unnamed streams."""
        return self._data

    @property
    def data(self) -> dict[str, Bound]:
        """The bound data, by name of stream."""
        names = self.named.names
        return {names[name]: bound for name, bound in self._data.items()}

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return schema_of(self._plan)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams it reads, in plan order."""
        return tuple(source.name for source in self.named.sources)

    @property
    def name(self) -> str:
        """The name of the only stream it reads."""
        if len(self.names) != 1:
            many = "several streams" if self.names else "no stream"
            raise BindingError(f"this query reads {many}; .names lists them: {', '.join(self.names)}")
        return self.names[0]

    @property
    def metrics(self) -> Metrics | None:
        """The metrics of the last or current run of this query; None before the first."""
        return self._metrics

    def began(self, metrics: Metrics) -> None:
        """Set the metrics of the current run."""
        self._metrics = metrics

    def compiled(self) -> Compiled:
        """Compile the query; later runs reuse the result."""
        if self._compiled is None:
            from penstock.compile import compile_plan  # noqa: PLC0415 - loaded on first use

            self._compiled = compile_plan(self.plan)
        return self._compiled

    def derived(self, plan: Plan) -> Stream:
        """Return the stream of another plan over the same data."""
        return Stream(plan, self._data)

    # Rows

    def filter(self, /, *predicates: object, **values: object) -> Stream:
        """Keep the rows for which every predicate is true (neither false nor null) and columns equal these values.

        >>> import pyarrow as pa, penstock as pk
        >>> events = pk.from_arrow(pa.table({"t": [1, 2, 3], "k": ["a", "b", "a"]}), time="t")
        >>> events.filter(pk.col("t") > 1, k="a").collect()["t"].to_pylist()
        [3]
        """
        return self.derived(row_verbs.filtered(self._plan, predicates, values))

    def select(self, /, *exprs: object, **named_exprs: object) -> Stream:
        """Select and compute columns; the time column is kept in front unless it is among them.

        >>> import penstock as pk
        >>> events = pk.stream("events", {"ts": "timestamp[us]", "a": "int64", "b": "int64"}, time="ts")
        >>> events.select("a", double=pk.col("b") * 2).schema.names
        ['ts', 'a', 'double']
        """
        return self.derived(row_verbs.selected(self._plan, exprs, named_exprs))

    def with_columns(self, /, *exprs: object, **named_exprs: object) -> Stream:
        """Add columns, or replace those of the same name."""
        return self.derived(row_verbs.extended(self._plan, exprs, named_exprs))

    def drop(self, *names: object) -> Stream:
        """Drop columns."""
        return self.derived(
            row_verbs.dropped(self._plan, [row_verbs.column_name(name, "drop") for name in flat(names)])
        )

    def rename(self, names: Mapping[str, str]) -> Stream:
        """Rename columns, old to new."""
        return self.derived(row_verbs.renamed(self._plan, names))

    def union(self, *others: Stream) -> Stream:
        """Combine the rows of streams with the same columns."""
        data = dict(self._data)
        for other in others:
            if not isinstance(other, Stream):
                raise ExpressionTypeError(f"union takes streams, not a {type(other).__name__}")
            data = together(data, other.raw_data)
        plan = row_verbs.united([self._plan, *(other.raw_plan for other in others)])
        return Stream(single_named(plan), data)

    def distinct(self, subset: object = None, within: Duration | None = None, keep: str = "first") -> Stream:
        """Keep the first (or last) row, in time order, for each value of the subset of columns.

        With `within=`, a value begins a new run when that much time has passed since the first row of its run.

        >>> import pyarrow as pa, penstock as pk
        >>> events = pk.from_arrow(pa.table({"t": [0, 3, 10, 12], "k": ["a"] * 4}), time="t")
        >>> events.distinct("k", within=10).collect()["t"].to_pylist()
        [0, 10]
        """
        names = [] if subset is None else [row_verbs.column_name(name, "distinct") for name in flat([subset])]
        return self.derived(row_verbs.distinct(self._plan, names, keep, within))

    def top_k(self, k: int, by: object, ties: str = "first") -> Stream:
        """Keep the k largest rows of each window by a column, or by an expression such as `-pk.col("x")`."""
        return self.derived(row_verbs.top(self._plan, k, by, ties))

    # Windows

    def window(
        self,
        window: object = None,
        *,
        every: Duration | None = None,
        offset: Duration | None = None,
        tz: str | None = None,
        by: object = None,
    ) -> Windowed:
        """Divide time into windows: `window("10s")`, `window("1h", every="5m")`, `window(pk.tumbling("10s"))`.

        `by=` groups each window by one column or several. Without a size, rows keep the window they already carry.
        """
        return windowed(self, window, every, offset, tz, by)

    def rolling(
        self, size: object, by: object = None, closed: str = "right", delay: Duration | None = None
    ) -> LookingBack:
        """Aggregate, for every row, the rows of its key before it: a span of time, `pk.rows(n)`, or a list of spans.

        A span covers `(t - size, t]` and every row of the same time; `closed="left"` excludes the current time, and
        `delay=` ends the span that much earlier. Several spans are computed in one pass; their columns are named
        `m_1h`, `m_24h`, `m_20rows`.

        >>> import pyarrow as pa, penstock as pk
        >>> trades = pk.from_arrow(pa.table({"t": [1, 2, 11], "p": [1.0, 3.0, 5.0]}), time="t")
        >>> trades.rolling(10).agg(m=pk.mean("p")).collect().to_pydict()
        {'t': [1, 2, 11], 'm': [1.0, 2.0, 4.0]}
        """
        plan, keys = keyed(self._plan, by, taken=())
        return look_back(self if plan is self._plan else self.derived(plan), size, keys, closed, delay)

    def signal(
        self,
        values: object,
        by: object = None,
        lasting: Duration | None = None,
        interval: str | Sequence[str] | None = None,
        resolve: str | None = None,
    ) -> Signal:
        """Use the rows as samples of a value that varies over time: a column, an expression, or several columns.

        A sample holds until the key's next one, at most for `lasting=`; or between the two columns of `interval=`, or
        until the single column it names. Of several values at one time the last counts, or their `resolve=`: "first",
        "last", "sum", "mean", "min", "max".

        >>> import pyarrow as pa, penstock as pk
        >>> trades = pk.from_arrow(pa.table({"t": [0, 4, 9], "p": [3, 5, 5]}), time="t")
        >>> trades.signal("p").collect().to_pydict()
        {'start': [0, 4], 'end': [4, None], 'value': [3, 5]}
        """
        from penstock.api.signals.source import signal  # noqa: PLC0415 - import cycle

        return signal(self, values, by, lasting, interval, resolve)

    # Joins: see join_verbs.py

    def with_other(self, plan: Plan, other: Stream) -> Stream:
        """Return the stream of a plan over the data of two streams."""
        return Stream(single_named(plan), together(self._data, other.raw_data))

    # Relations and streams

    def rstream(self) -> Stream:
        """Return the rows of every window, as a windowed result does anyway (CQL's RStream)."""
        require_windows(self._plan, "rstream")
        return self

    def istream(self) -> Stream:
        """Return the rows of a window's result that the previous window did not have (CQL's IStream).

        Rows are compared by all columns except the window bounds. After a window without rows, all rows are new.

        >>> import pyarrow as pa, penstock as pk
        >>> events = pk.from_arrow(pa.table({"t": [1, 2, 6, 11], "k": ["a", "b", "a", "a"]}), time="t")
        >>> events.window(5, by="k").agg(n=pk.count()).istream().collect().select(["window_end", "k"]).to_pydict()
        {'window_end': [5, 5], 'k': ['a', 'b']}
        """
        columns = fresh_columns(self._plan, self.schema.names)
        return self.derived(fresh(self._plan, columns))

    # Running

    def collect(
        self,
        data: Any = None,
        *,
        engine: Engine | None = None,
        metrics: Metrics | None = None,
        **bindings: Any,
    ) -> pa.Table:
        """Run over all data, bound by stream name, and return the result as a table: `collect(events=table)`.

        The data of the only stream, or a mapping of names to data, may also be passed by position.
        """
        table, self._metrics = collector()(self, data, bindings, engine, metrics)
        return table

    def head(self, n: int = 5, data: Any = None, /, **bindings: Any) -> pa.Table:
        """Run, and return the first rows of the result."""
        some = row_verbs.head_rows(n)
        return self.collect(data, **bindings).slice(0, some)

    def to_polars(self, data: Any = None, /, **bindings: Any) -> pl.DataFrame:
        """Run, and return the result as a Polars data frame."""
        polars = optional_module("polars", "to_polars")
        frame: pl.DataFrame = polars.from_arrow(self.collect(data, **bindings))
        return frame

    def to_pandas(self, data: Any = None, /, **bindings: Any) -> pd.DataFrame:
        """Run, and return the result as a pandas data frame."""
        optional_module("pandas", "to_pandas")  # fail before the query runs
        return self.collect(data, **bindings).to_pandas()

    def then(self, live: Stream, *, at: object) -> Stream:
        """Combine this history and a live source into one stream: one query, one state, from the first file on.

        Rows before `at` are read from the history, all others from the live source: history rows at or after that time,
        and live rows before it, are dropped and counted as filtered. Both must have the live source's columns. History
        rows are never late, in whatever order they are read; the stream has the other options of `live`.

        >>> import pyarrow as pa, penstock as pk
        >>> past = pk.from_arrow(pa.table({"t": [1, 12, 25], "v": [1, 2, 9]}), time="t")
        >>> live = pk.from_arrow(pa.table({"t": [5, 20, 31], "v": [9, 3, 4]}), time="t")
        >>> [b["total"].to_pylist() for b in past.then(live, at=20).window(10).agg(total=pk.sum("v")).run()]
        [[1, 2], [3], [4]]
        """
        from penstock.api.backfill import backfilled  # noqa: PLC0415 - loaded on first use

        return backfilled(self, live, at)

    def to_spark(
        self,
        spark: Any,
        data: Any = None,
        /,
        *,
        strategy: str | None = None,
        tasks: int | None = None,
        output_mode: str = "append",
        memory: int | str | None = None,
        columns: Sequence[str] | None = None,
        **bindings: Any,
    ) -> Any:
        """Return the result as a Spark DataFrame, computed by Spark's executors where the data is.

        Streams are bound to files (`pk.scan`), to DataFrames (`pk.from_spark`, or by name here), or to tables.
        `strategy` forces how the work is distributed ("slices", "fragments", "keys", "times" or "one"; `explain("spark")`
        shows the choice and its reason), `tasks` the number of tasks. `memory` ("2GB") bounds what operators hold in one
        task: rows beyond it are sorted on local disk, and larger states raise a `MemoryLimitError`. Without it, Spark's
        `spark.executor.pyspark.memory` or `spark.executor.memoryOverhead` does. `columns` names those of the result that are
        needed, which Spark does not pass on: nothing else is computed or read.

        On unbounded streams each window is emitted once, when it is complete. With `output_mode="update"`, for a query
        started with `writeStream.outputMode("update")`, open windows are emitted whenever they have changed.

        >>> views.to_spark(spark, events=spark.table("events")).show()     # doctest: +SKIP
        """
        frame = import_module("penstock.spark.frame")  # an upper layer, loaded on demand
        return frame.to_spark(self, spark, data, bindings, strategy, tasks, output_mode, memory, columns)

    def to_json(self) -> str:
        """Serialise the query to text, for `spark.read.format("penstock").option("query", text)`.

        >>> import penstock as pk
        >>> pk.stream("events", {"t": "int64"}, time="t").to_json()[:20]
        '{"penstock-plan": 2,'
        """
        from penstock.plan.codec import encode_alone  # noqa: PLC0415 - loaded on first use

        return encode_alone(self.plan)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Run, and export the result as an Arrow stream."""
        return self.collect().__arrow_c_stream__(requested_schema)

    # Display

    def explain(self, stage: str | None = None) -> Explanation:
        """Show a stage of compilation: plan, ir, passes, physical, loop, llvm, asm or spark; an overview without `stage`."""
        return explain(self, stage)

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name!r}: {field.type}" for field in self.schema)
        return f"<Stream of {', '.join(map(repr, self.names))} ({columns})>"

    def _repr_html_(self) -> str:
        return html(self.plan)
