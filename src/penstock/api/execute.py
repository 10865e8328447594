"""Bind data to the streams of a query, and run it to the end."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.api.ingress import sifted
from penstock.api.source_options import malformed_rows_warning, outside_level
from penstock.api.stream import Stream
from penstock.errors import BindingError, EngineError, MalformedRowsWarning, UnsupportedError
from penstock.plan.nodes import Source
from penstock.runtime.engine import Engine
from penstock.runtime.metrics import Metrics
from penstock.sources.arrow import InMemory, bind, is_frame
from penstock.sources.bound import Bound, OnFiles, access_of, is_on_files, is_present, is_unplaced
from penstock.sources.conform import check, conformer, unchanged
from penstock.sources.malformed import Arrived, Malformed
from penstock.sources.rows import batch_of, is_rows

if TYPE_CHECKING:
    from penstock.compile import Compiled
    from penstock.runtime.session import Session


def collect(
    stream: Stream, data: Any, bindings: Mapping[str, Any], engine: Engine | None, metrics: Metrics | None
) -> tuple[pa.Table, Metrics]:
    """Push all data of all streams through the query and return the result and the metrics."""
    require_streams(stream)
    refuse_arrival(stream.named.sources, "collect")
    bound = bind_all(stream, data, bindings)
    compiled = stream.compiled()
    chosen = engine_of(engine)
    if metrics is not None and not isinstance(metrics, Metrics):
        raise EngineError(f"metrics= takes a pk.Metrics to add to, not a {type(metrics).__name__}")
    budget = chosen.budget
    session = compiled.open(chosen) if budget is None else compiled.open_within(chosen, budget)
    batches: list[pa.RecordBatch] = []
    fill_tables(stream, session)
    for source in stream.named.sources:
        rows = _rows(source, bound[source.name], compiled, session, chosen)
        for group in grouped(rows):
            batches += session.push(source.name, *group)
    batches += session.finish()
    session.metrics.spilled_bytes += 0 if budget is None else budget.spilled
    if message := malformed_rows_warning(stream.named.sources, session.metrics.malformed):
        warnings.warn(message, MalformedRowsWarning, outside_level())
    if metrics is not None:
        metrics.update(session.metrics)
    return pa.Table.from_batches(batches, schema=compiled.schema), session.metrics


def require_streams(stream: Stream) -> None:
    """Reject a query that reads no stream."""
    if not stream.named.sources:
        raise UnsupportedError(
            "this query reads tables alone, which have no time; join a stream with them, "
            "or make one of the data with pk.from_arrow(data, time=...)"
        )


def refuse_arrival(sources: Iterable[Source], what: str) -> None:
    """Reject a run over data that is already there, if rows are stamped when they arrive."""
    for source in sources:
        if source.edges.arrival is not None:
            raise UnsupportedError(
                f"{what} reads rows that are already there, and stream {source.name!r} has time=pk.arrival(): push rows "
                "with open(), run over an iterator of batches, or name a time column"
            )


def engine_of(engine: Engine | None) -> Engine:
    """Return the given engine, or the default one."""
    if engine is not None and not isinstance(engine, Engine):
        raise EngineError(
            f"engine= takes a pk.Engine, such as pk.Engine(threads=2), not a {type(engine).__name__}"
        )
    return engine or Engine()


def _rows(
    source: Source, data: Bound, compiled: Compiled, session: Session, engine: Engine
) -> Iterator[pa.RecordBatch]:
    """Read all rows the query needs; with a quarantine, or from live sources, all columns of all rows."""
    if is_present(data):
        given = data.present(source.time.column, source.on_bad)
    elif source.on_bad == "quarantine":
        given = (
            rows_of_files(source, data, compiled)
            if is_on_files(data)
            else map(Arrived, read(source, data, source.schema.names, compiled, session.metrics))
        )
    else:
        return needed_rows(source, data, compiled, session, engine)
    names = list(compiled.columns[source.name])
    return (batch.select(names) for batch in sifted(source, given, session, access_of(data)))


def needed_rows(
    source: Source, data: Bound, compiled: Compiled, session: Session, engine: Engine
) -> Iterator[pa.RecordBatch]:
    """Read all rows the query needs, and report the number of rows that files skipped to the session."""
    columns = compiled.columns[source.name]
    if is_on_files(data):
        return _rows_of_files(source, data, columns, compiled, session, engine)
    return read(source, data, columns, compiled, session.metrics)


def _rows_of_files(
    source: Source,
    data: OnFiles,
    columns: Sequence[str],
    compiled: Compiled,
    session: Session,
    engine: Engine,
) -> Iterator[pa.RecordBatch]:
    plan, pushed = data.dataset(), 0
    structs = compiled.structs.get(source.name)
    if structs:  # the fields that are not read become null where batches get the declared types
        plan = plan.typed(structs)
    where, steps = compiled.predicates.get(source.name), compiled.coarse_times.get(source.name)
    malformed = Malformed(source.on_bad, source.time.column)
    for batch in plan.batches(list(columns), where, engine.workers, steps, malformed):
        pushed += batch.num_rows
        session.skip(source.name, 0, len(malformed.taken()))
        yield _conformed(batch, source, columns, compiled)
    session.skip(source.name, 0 if plan.rows is None else plan.rows - pushed)


def fill_tables(stream: Stream, session: Session) -> None:
    """Fill the tables of the query before the first row of a stream is pushed."""
    tables = stream.named.tables
    if not tables:
        return
    data, columns = stream.data, stream.compiled().table_columns
    for table in tables:
        session.fill(table.name, data[table.name].batches(list(columns[table.name])))


def rows_of_files(source: Source, data: OnFiles, compiled: Compiled) -> Iterator[Arrived]:
    """Read all columns of files, and the malformed records."""
    malformed, names = Malformed(source.on_bad, source.time.column), source.schema.names
    for batch in data.dataset().batches(names, malformed=malformed):
        yield Arrived(_conformed(batch, source, names, compiled), bad=malformed.taken())


def read(
    source: Source, data: Bound, columns: Sequence[str], compiled: Compiled, metrics: Metrics
) -> Iterator[pa.RecordBatch]:
    """Read columns in the types the stream declares.

    Rows of unordered data are ordered by the columns that the query reads. If the query depends on the order of rows,
    ties are counted.
    """
    if not is_unplaced(data):
        batches = data.batches(list(columns))
    else:
        batches = data.ordered(columns, compiled.columns[source.name])
    for batch in batches:
        if compiled.ordered and is_unplaced(data):
            metrics.ties += data.ties(batch)
        yield _conformed(batch, source, columns, compiled)


def _conformed(
    batch: pa.RecordBatch, source: Source, columns: Sequence[str], compiled: Compiled
) -> pa.RecordBatch:
    if unchanged(batch.schema, compiled.inputs[source.name]):
        return batch
    where = f"the data of stream {source.name!r}"
    return conformer(batch.schema, source.schema, columns, where)(batch)


def grouped(batches: Iterable[pa.RecordBatch], rows: int = 1 << 22) -> Iterator[list[pa.RecordBatch]]:
    """Group small batches, so that every push has work for all threads."""
    group: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        group.append(batch)
        held += batch.num_rows
        if held >= rows:
            yield group
            group, held = [], 0
    if group:
        yield group


def bind_all(stream: Stream, data: Any, bindings: Mapping[str, Any]) -> dict[str, Bound]:
    """Return the data of every stream, checking names and schemas before any row is read.

    Data in memory is checked once: a second run without other data reuses the result.
    """
    if data is None and not bindings and stream.bound is not None:
        return stream.bound
    sources = {source.name: source for source in stream.named.sources}
    known, passed = stream.data, named_bindings(sources, data, bindings)
    given = {**known, **{name: following(known.get(name), value) for name, value in passed.items()}}
    missing = [name for name in sources if name not in given]
    if missing:
        raise BindingError(
            f"no data is bound to the stream {missing[0]!r}; pass it by name, as in collect({missing[0]}=table)"
            if missing[0].isidentifier()
            else f"no data is bound to the stream {missing[0]!r}; pass a mapping of names to data"
        )
    bound = {name: _bound_to(source, given[name]) for name, source in sources.items()}
    for name, source in sources.items():
        check(bound[name].schema, source.schema, f"the data of stream {name!r}")
    if not passed and all(isinstance(item, InMemory) for item in bound.values()):
        stream.bound = bound
    return bound


def following(known: Any, given: Any) -> Any:
    """Append data to a stream with a history; otherwise it replaces the bound data."""
    return known.followed_by(as_bound(given)) if hasattr(known, "followed_by") else given


def named_bindings(sources: Mapping[str, Source], data: Any, bindings: Mapping[str, Any]) -> dict[str, Any]:
    """Combine data passed by position and by name into one mapping."""
    names = tuple(sources)
    if data is None:
        placed: Mapping[str, Any] = {}
    elif isinstance(data, Mapping) and not _is_of_columns(data, sources):
        placed = data
    elif len(names) == 1:
        placed = {names[0]: data}
    else:
        raise BindingError(f"this query reads several streams; pass their data by name: {', '.join(names)}")
    for name in (*placed, *bindings):
        if not isinstance(name, str) or name not in names:
            raise _no_such_stream(name, sources)
        if name in placed and name in bindings:
            raise BindingError(
                f"the stream {name!r} is given data twice, by position and by name; give it once"
            )
    return {**placed, **bindings}


def _is_of_columns(data: Mapping[Any, Any], sources: Mapping[str, Source]) -> bool:
    """Check whether a mapping is a row, or columns, of the only stream. Names of streams take precedence."""
    if len(sources) != 1 or data.keys() <= sources.keys():
        return False
    (source,) = sources.values()
    return any(name in data for name in source.schema.names)


def _no_such_stream(name: object, sources: Mapping[str, Source]) -> BindingError:
    among = f"(streams: {', '.join(map(repr, sources))})"
    if not isinstance(name, str):
        return BindingError(f"this query reads no stream {name!r} {among}")
    owner = next((stream for stream, source in sources.items() if name in source.schema.names), None)
    if owner is not None:
        return BindingError(
            f"data is given by the name of its stream {among}, and {name!r} is a column of {owner!r}: "
            "give rows or columns by the name of their stream, as a keyword or in a mapping"
        )
    near = get_close_matches(name, tuple(sources), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    columns = f"; a row or columns of it need {list(next(iter(sources.values())).given.names)}" * (
        len(sources) == 1
    )
    return BindingError(f"this query reads no stream {name!r}{hint} {among}{columns}")


def _bound_to(source: Source, data: Any) -> Bound:
    if not is_frame(data):
        return as_bound(data, source)
    above = import_module("penstock.spark.bound")  # an upper layer, loaded on demand
    bound: Bound = above.bound_for(data, source)
    return bound


def as_bound(data: Any, source: Source | None = None) -> Bound:
    """Convert user data: Arrow data, rows in the types of their stream, or another stream that is only a source."""
    if source is not None and is_rows(data):
        return bind(batch_of(data, source.schema, f"the data of stream {source.name!r}"))
    if not isinstance(data, Stream):
        return data if hasattr(type(data), "batches") else bind(data)
    if isinstance(data.raw_plan, Source) and data.data:
        return next(iter(data.data.values()))
    return bind(data.collect())
