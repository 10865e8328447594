"""Add the archive of Penstock to a running session, classic or Connect."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.codegen.cache import default_directory
from penstock.codegen.files import private_directory
from penstock.errors import EngineError
from penstock.spark.deploy.pack import ALIAS, PackTarget, archive_name, pack_archive
from penstock.spark.deploy.preflight import require_penstock, surveyed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

KEPT = 4


def ship(
    spark: SparkSession, archive: str | os.PathLike[str] | None = None, *, add: Sequence[str] = ()
) -> Path:
    """Give the executors of a running session this Penstock, with the packages that it needs.

    The archive is packed for the Python and the platform that an executor reports, and kept in the user's cache. Packages
    that user functions need are named in `add`. `archive` is one that `penstock pack` has written. Workers that have
    imported another Penstock keep it: ship before the first query.

    >>> spark = SparkSession.builder.master("spark://head:7077").getOrCreate()       # doctest: +SKIP
    >>> pk.ship(spark)                                                               # doctest: +SKIP
    >>> query.to_spark(spark).show()                                                 # doctest: +SKIP
    """
    from penstock.spark.source import register  # noqa: PLC0415 - needs pyspark

    if not hasattr(spark, "addArtifacts"):
        raise EngineError(f"ship takes a SparkSession of Spark 4.0 or newer, not a {type(spark).__name__}")
    path = _packed(_target_of(spark), add) if archive is None else _given(Path(archive))
    spark.addArtifacts(f"{path}#{ALIAS}", archive=True)
    register(spark)  # again: a data source keeps the environment that it was registered in
    require_penstock(spark)
    return path


def _target_of(spark: SparkSession) -> PackTarget:
    (found,) = surveyed(spark, tasks=1)
    return PackTarget(".".join(found.python.split(".")[:2]), found.machine, found.system)


def _given(path: Path) -> Path:
    if not path.is_file():
        raise EngineError(f"there is no archive {str(path)!r}; `penstock pack` writes one")
    return path.absolute()


def _packed(target: PackTarget, add: Sequence[str]) -> Path:
    """Return the archive from the user's cache, or pack it."""
    folder = _cache()
    path = folder / archive_name(target, add)
    if not path.is_file():
        pack_archive(path, target, add=add)
        _remove_old(folder)
    return path


def _remove_old(folder: Path) -> None:
    """Remove all but the newest archives: each is a few hundred megabytes. Sessions that run serve theirs from here."""
    found = sorted(folder.glob("penstock-*.tar.gz"), key=lambda path: path.stat().st_mtime_ns)
    for path in found[:-KEPT]:
        path.unlink(missing_ok=True)


def _cache() -> Path:
    """Return a folder that no other user can write to: executors run what lies in it."""
    chosen = default_directory()
    if chosen is None:
        raise EngineError("PENSTOCK_CACHE_DIR is empty, so there is no folder for the archive; pass archive=")
    folder, problem = private_directory(chosen / "archives")
    if folder is None:
        raise EngineError(f"the archive cannot be kept: {problem}; set PENSTOCK_CACHE_DIR, or pass archive=")
    return folder
