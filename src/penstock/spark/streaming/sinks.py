"""Sinks that write each batch once, also when Spark repeats it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.api.source_options import access_to
from penstock.errors import EngineError, StateError
from penstock.storage.access import LOCAL, Access
from penstock.storage.delta import delta_options
from penstock.storage.uri import resolved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A Delta table stores transaction ids of several applications. The prefix separates these from others.
_PREFIX = "penstock/"


@dataclass(frozen=True, slots=True)
class DeltaSink:
    """Append each batch to a Delta table in one commit with its batch id. Skip a repeated batch."""

    path: str
    query_id: str
    access: Access = LOCAL

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write a batch; the signature is that of `foreachBatch`."""
        written = self.last_batch()
        if written is not None and batch_id < written:
            raise StateError(
                f"batch {batch_id} of {self.query_id!r} comes after batch {written} was written to {self.path!r}: "
                "the checkpoint is new or older than the table; give the query a new query_id, or its own checkpoint"
            )
        if written == batch_id:
            # The rows are in the table, but computing them updates the state of the query, so compute them again.
            frame.write.format("noop").mode("overwrite").save()
        else:
            self._append(frame.toArrow(), batch_id)

    def last_batch(self) -> int | None:
        """Return the id of the last batch of this query in the table."""
        deltalake = _deltalake()
        try:
            table = deltalake.DeltaTable(self.path, storage_options=self._options())
        except deltalake.exceptions.TableNotFoundError:
            return None
        found: int | None = table.transaction_version(self._app)
        return found

    def _append(self, rows: pa.Table, batch_id: int) -> None:
        deltalake = _deltalake()
        done = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(self._app, batch_id)])
        deltalake.write_deltalake(
            self.path, rows, mode="append", commit_properties=done, storage_options=self._options()
        )

    @property
    def _app(self) -> str:
        return _PREFIX + self.query_id

    def _options(self) -> dict[str, str] | None:
        return delta_options(self.path, self.access) if self.access.reaches(self.path) else None


def delta_sink(
    path: str | PathLike[str], query_id: str, *, storage_options: Mapping[str, object] | None = None
) -> DeltaSink:
    """Return a sink for `foreachBatch` that writes each batch to a Delta table exactly once.

    After a crash Spark repeats the last batch. The sink commits the batch id together with the rows under `query_id`, so it
    detects the repetition. A query keeps its id as long as it keeps its checkpoint. The path may be a URI of an object
    store, with `storage_options=` as in `scan`.

    >>> sink = pk.delta_sink("views", query_id="views-by-campaign")             # doctest: +SKIP
    >>> views.to_spark(spark).writeStream.foreachBatch(sink).start()            # doctest: +SKIP
    """
    if not isinstance(path, (str, PathLike)) or not str(path):
        raise EngineError(f"delta_sink takes the path of a table, not {path!r:.40}")
    if not isinstance(query_id, str) or not query_id:
        raise EngineError("query_id is a name that is not empty; keep it as long as the checkpoint")
    _deltalake()
    where = resolved(fspath(path))
    return DeltaSink(where, query_id, access_to(where, storage_options))


def _deltalake() -> Any:
    try:
        import deltalake  # noqa: PLC0415 - an optional dependency
        import deltalake.exceptions  # noqa: PLC0415
    except ImportError:
        raise EngineError("deltalake is not installed; pip install 'penstock[delta]'") from None
    return deltalake
