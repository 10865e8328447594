"""`spark.read.format("penstock")`: a query over files as a data source of Spark.

    (spark.read.format("penstock")
          .option("query", views.to_json())      the query, whose streams are declared or scanned
          .load("events/*.parquet"))             or .option("paths", '["a.parquet", "b.parquet"]')

A query of several streams takes `paths` as a JSON mapping of their names to paths. Further options: `format`,
`strategy` ("slices" or "one"), `tasks`, and `filters`: "pushed" hands filters on the result to the query, so that fewer
rows are read; the session needs `spark.sql.python.filterPushdown.enabled`. Object stores are reached by the configuration of the session
when it registered the format, else by the environment of executors. A data source cannot shuffle: a query that needs a shuffle runs in one task
here, and in several with `query.to_spark(spark)`. Options are data: no code is ever read from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from penstock.api.expr import Expr
from penstock.api.stream import Stream
from penstock.compile import Compiled
from penstock.errors import BindingError, EngineError, PlanError, UnsupportedError
from penstock.physical.choose_strategy import ONE, SLICES
from penstock.plan.schema import schema_of, sources_of, tables_of
from penstock.sources.bound import Bound, access_of
from penstock.sources.conform import check
from penstock.sources.dataset import open_data
from penstock.spark.deploy.beside_driver import show_archive
from penstock.spark.planning import Physical, planned
from penstock.spark.predicates import penstock_filter
from penstock.spark.slices import Neighbours, as_json, from_json
from penstock.spark.storage import hadoop_settings
from penstock.spark.task_memory import UNBOUNDED
from penstock.spark.tasks import Query, RunTask, run_task, work_on_part
from penstock.spark.types import never_null, spark_schema
from penstock.storage.access import LOCAL, Access

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TASKS = 8  # a data source cannot read the parallelism of the cluster
MOST_TASKS = 1_000_000
STORES = ("fs.s3a.", "fs.azure.", "fs.gs.", "google.cloud.", "dfs.")  # Hadoop's settings of object stores
OPTIONS = ("query", "path", "paths", "format", "strategy", "tasks", "filters")


class PenstockSource(DataSource):
    """A Spark data source whose options hold a query and its files.

    Credentials are in no option: `HADOOP` holds those of the session's configuration, and Spark sends it with the class.
    """

    HADOOP: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return "penstock"

    def schema(self) -> StructType:
        """Return the schema of the result."""
        plan = self._query().compiled().plan
        return spark_schema(schema_of(plan), never_null(plan))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Plan the read. Files are checked here, before any task starts."""
        del schema
        compiled = self._query().compiled()
        if tables_of(compiled.plan):
            raise UnsupportedError(
                "a query that joins a table runs with query.to_spark(spark): options hold no rows"
            )
        pushes = str(self.options.get("filters", "spark"))
        if pushes not in ("spark", "pushed"):
            raise EngineError(f"the option 'filters' is {pushes!r:.40}; there are 'spark' and 'pushed'")
        return (FilteringReader if pushes == "pushed" else PenstockReader)(self, compiled)

    def planned(self, compiled: Compiled) -> Work:
        """Return a query as tasks get it, and their parts."""
        bound = bound_paths(compiled, self.options, self.HADOOP)
        physical = self._planned(compiled, bound)
        parts = tuple(json.dumps(as_json(part)) for part in physical.parts)
        accesses = {name: access for name, data in bound.items() if (access := access_of(data)).given}
        return Work(run_task(compiled, (), UNBOUNDED, "UTC"), parts, accesses)

    def _query(self) -> Query:
        unknown = [name for name in self.options if name.lower() not in OPTIONS]
        if unknown:
            raise EngineError(
                f"format('penstock') has no option {unknown[0]!r:.60}; there are {', '.join(OPTIONS)}"
            )
        text = self.options.get("query")
        if text is None:
            raise PlanError("the option 'query' is missing; write .option('query', query.to_json())")
        return Query(str(text))

    def _planned(self, compiled: Compiled, bound: Mapping[str, Bound]) -> Physical:
        wanted = self.options.get("strategy")
        if wanted not in (None, SLICES, ONE):
            raise EngineError(
                f"the option 'strategy' is {wanted!r:.40}; a data source cannot shuffle, so there are {SLICES!r} and {ONE!r}: "
                "use query.to_spark(spark) for others"
            )
        tasks = self._tasks()
        physical = planned(compiled, bound, wanted, tasks)
        if physical.choice.strategy in (SLICES, ONE):
            return physical
        return planned(compiled, bound, ONE, tasks)

    def _tasks(self) -> int:
        given = str(self.options.get("tasks", TASKS))
        if not (given.isascii() and given.isdigit() and 1 <= int(given[:10]) <= MOST_TASKS):
            raise EngineError(
                f"the option 'tasks' is {given!r:.40}; it is a whole number from 1 to {MOST_TASKS:,}"
            )
        return int(given)


@dataclass(frozen=True)
class Work:
    """What tasks run, what each reads, and how it is reached."""

    task: RunTask
    parts: tuple[str, ...]
    accesses: Mapping[str, Access] = field(repr=False)

    def on_part(self, number: int) -> Iterator[pa.RecordBatch]:
        """Return the results of a task."""
        part = from_json(json.loads(self.parts[number]), self.accesses)
        return work_on_part(self.task, part, Neighbours(self.parts, number, self.accesses))


def bound_paths(
    compiled: Compiled, options: Mapping[str, Any], hadoop: Mapping[str, str] | None = None
) -> dict[str, Bound]:
    """Bind files to each stream, reached by Hadoop's settings."""
    sources = {source.name: source for source in sources_of(compiled.plan)}
    paths = _paths(options, tuple(sources))
    bound: dict[str, Bound] = {}
    for name, source in sources.items():
        if name not in paths:
            raise BindingError(
                f"no paths are given for the stream {name!r}; write them in the option 'paths'"
            )
        first = paths[name] if isinstance(paths[name], str) else next(iter(paths[name]), "")
        access = LOCAL.or_hadoop(dict(hadoop or {}), str(first))
        bound[name] = open_data(paths[name], options.get("format"), access=access)
        check(bound[name].schema, source.schema, f"the data of stream {name!r}")
    return bound


def _paths(options: Mapping[str, Any], streams: tuple[str, ...]) -> dict[str, Any]:
    given = options.get("paths", options.get("path"))
    if given is None:
        raise BindingError("no paths are given; write .load(path), or .option('paths', ...)")
    parsed = _parsed(str(given))
    if isinstance(parsed, dict):
        return {str(name): value for name, value in parsed.items()}
    if len(streams) > 1:
        raise BindingError(
            f"the query reads several streams; 'paths' must map their names: {', '.join(streams)}"
        )
    return {streams[0]: parsed}


def _parsed(text: str) -> Any:
    """Parse a JSON list or mapping. Any other text is a path."""
    if text[:1] not in ("[", "{"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass(frozen=True)
class PenstockPartition(InputPartition):
    """The input of one task."""

    number: int


class PenstockReader(DataSourceReader):
    """Run the query inside the tasks that read the files."""

    def __init__(self, source: PenstockSource, compiled: Compiled) -> None:
        self.work = source.planned(compiled)

    def partitions(self) -> list[InputPartition]:
        """List one partition per task."""
        return [PenstockPartition(number) for number in range(len(self.work.parts))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the files of a task and return the results of its slice."""
        assert isinstance(partition, PenstockPartition)
        return self.work.on_part(partition.number)


class FilteringReader(PenstockReader):
    """A reader that takes filters of Spark, which refuses such a one unless its switch for filters is set."""

    def __init__(self, source: PenstockSource, compiled: Compiled) -> None:
        super().__init__(source, compiled)
        self._source = source

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """Filter the results of the query, which its passes move to the scan where they can. Spark filters once more."""
        plan = self.work.task.given.compiled().plan
        known = [made for given in filters if (made := penstock_filter(given, schema_of(plan))) is not None]
        if known:
            narrowed = Stream(plan, {}).filter(*map(Expr, known)).compiled()
            self.work = self._source.planned(narrowed)
        return filters


def register(spark: Any) -> None:
    """Register the format "penstock" with a session, in the present environment of workers. Spark 4.0 refuses what it has found by itself (`pyspark_penstock`)."""
    show_archive(spark)
    hadoop = {name: value for name, value in hadoop_settings(spark).items() if name.startswith(STORES)}
    known: Any = type("PenstockSourceOfSession", (PenstockSource,), {"HADOOP": hadoop})
    try:
        spark.dataSource.register(known if hadoop else PenstockSource)
    except Exception as error:  # the exception type differs between classic and Connect sessions
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
