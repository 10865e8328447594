"""URIs of files: which part names the store, and which the file in it.

    uri ::= scheme "://" authority "/" key      s3://bucket/day=1/a.parquet

A URI of a local file becomes a path. Anything else without `://` is a local path already, also `s3:a.parquet`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote

from penstock.errors import SourceError, UnsupportedError

# Several schemes name one kind of store: Hadoop's clients have names of their own.
CLOUD = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "abfss": "azure",
    "abfs": "azure",
    "az": "azure",
}
HADOOP = ("hdfs", "viewfs", "webhdfs", "swebhdfs")
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/?(.*)", re.DOTALL)
_LOCAL = re.compile(r"file:(?://([^/]*))?(/.*)", re.DOTALL | re.IGNORECASE)
_DATABRICKS = re.compile(r"dbfs:/+(.*)", re.DOTALL | re.IGNORECASE)
_USER = re.compile(r"/[^/]*:[^/]*@")
_RUNTIME = "DATABRICKS_RUNTIME_VERSION"


@dataclass(frozen=True, slots=True)
class Uri:
    """A file in a store. The authority is a bucket, a container and its account, or a name node.

    >>> Uri.of("s3a://lake/day=1/a.parquet")
    Uri(scheme='s3a', authority='lake', key='day=1/a.parquet')
    >>> Uri.of("/data/a.parquet") is None
    True
    """

    scheme: str
    authority: str
    key: str

    @staticmethod
    def of(path: str) -> Uri | None:
        found = _URI.fullmatch(path)
        return None if found is None else Uri(found[1].lower(), found[2], found[3])

    @property
    def root(self) -> str:
        """Return the URI of the whole store, which precedes each key."""
        return f"{self.scheme}://{self.authority}/"


def is_uri(path: str) -> bool:
    """Check whether a path names a store."""
    return _URI.fullmatch(path) is not None


def resolved(path: str) -> str:
    """Return a local path for a URI of a local file, and any other path as it is, after checking it.

    >>> resolved("file:///data/a%20b.parquet"), resolved("s3://lake/a.parquet"), resolved("events/*.csv")
    ('/data/a b.parquet', 's3://lake/a.parquet', 'events/*.csv')
    """
    if ":/" not in path:
        return path
    local, databricks, uri = _LOCAL.fullmatch(path), _DATABRICKS.fullmatch(path), Uri.of(path)
    if local is not None:
        return _local(path, local[1] or "", local[2])
    if databricks is not None:
        return _mounted(databricks[1])
    if uri is not None:
        _check(path, uri)
    return path


def absolute(path: str) -> str:
    """Return a path that means the same in every working directory. Links are not resolved.

    >>> absolute("s3://lake/a"), absolute("/data/./a")
    ('s3://lake/a', '/data/a')
    """
    path = resolved(path)
    return path if is_uri(path) else os.path.abspath(path)  # noqa: PTH100 - links must not be resolved


def _local(path: str, host: str, rest: str) -> str:
    if host.lower() not in ("", "localhost"):
        raise SourceError(
            f"the URI {path!r} names a file of another machine; write file:///path, or the path alone"
        )
    if _USER.match(rest):
        raise SourceError(
            f"the URI {path!r} holds credentials, and files of this machine need none; leave them out"
        )
    return unquote(rest)


def _mounted(rest: str) -> str:
    """Return the path below which Databricks mounts its file system; there is none elsewhere."""
    if _RUNTIME in os.environ:
        return f"/dbfs/{rest}"
    raise UnsupportedError(
        f"'dbfs:/{rest}' can be read on Databricks alone; write the location behind it, such as s3://bucket/..., "
        "abfss://container@account.dfs.core.windows.net/... or gs://bucket/... (in Databricks, "
        "`DESCRIBE DETAIL` shows that of a table)"
    )


def _check(path: str, uri: Uri) -> None:
    if uri.scheme not in CLOUD and uri.scheme not in HADOOP:
        raise UnsupportedError(
            f"there is no reader of {uri.scheme}:// for {path!r}; there are file, {', '.join((*CLOUD, *HADOOP))}, "
            "and with filesystem= any file system of pyarrow or fsspec"
        )
    # Before the "@" of abfss:// stands a container; elsewhere a user, perhaps with a password, which may hold slashes.
    azure, name_node = CLOUD.get(uri.scheme) == "azure", uri.scheme in HADOOP
    if ("@" in uri.authority and not azure) or (":" in uri.authority and not name_node):
        raise SourceError(
            f"the URI {path!r} holds credentials, which would be part of plans; give them as storage_options="
        )
    if not uri.authority and uri.scheme not in HADOOP:
        raise SourceError(f"the URI {path!r} names no bucket; write {uri.scheme}://bucket/folder")
