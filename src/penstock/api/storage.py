"""How a source reaches its files: by its own options, else by the configuration of the Spark session, else by the environment."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from penstock.storage.access import LOCAL, Access
from penstock.storage.uri import CLOUD, Uri, resolved


def access_to(paths: Any, storage_options: object = None, filesystem: object = None) -> Access:
    """Check `storage_options=` and `filesystem=` of a source, and fill in the settings of a running Spark session."""
    if storage_options is not None or filesystem is not None:
        return Access.of(storage_options, filesystem)
    uri = _cloud_uri(paths)
    if uri is None or "pyspark.sql" not in sys.modules:
        return LOCAL
    found: Access = import_module("penstock.spark.storage").active_access(uri)
    return found


def _cloud_uri(paths: Any) -> str | None:
    """Return the first path if it lies in an object store. One call reads one store."""
    first = (
        paths
        if isinstance(paths, str | os.PathLike) or not isinstance(paths, list | tuple)
        else next(iter(paths), None)
    )
    if not isinstance(first, str):
        return None
    uri = Uri.of(resolved(first))
    return first if uri is not None and uri.scheme in CLOUD else None
