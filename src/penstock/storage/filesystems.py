"""Stores of bytes: the interface, local and remote file systems, and Hadoop's."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Protocol

from penstock.caches import CACHES
from penstock.errors import EngineError, SourceError
from penstock.storage.options import Pairs
from penstock.storage.uri import CLOUD, HADOOP, Uri

# --- What every store of files provides.

Buffer = bytes | memoryview
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a store: its key, its size in bytes, and when it was written, in nanoseconds."""

    key: str
    size: int
    written: int


class Store(Protocol):
    """A flat set of files by key. Keys contain slashes; folders exist only as their prefixes.

    A missing file is a `FileNotFoundError`. Any other failure is an `OSError` whose text has no secret.
    """

    def list(self, folder: str) -> Iterator[Entry]:
        """List all files below a folder, in any order; none if there is no such folder."""

    def entry(self, key: str) -> Entry:
        """Describe one file."""

    def tail(self, key: str, size: int) -> tuple[Buffer, int]:
        """Read up to `size` bytes at the end of a file. Returns them and the size of the file."""

    def spans(self, key: str, spans: Sequence[Span]) -> Sequence[Buffer]:
        """Read several ranges of bytes, each by one request."""

    def write(self, key: str, data: Buffer) -> None:
        """Write a file, or replace it, in one step."""

    def create(self, key: str, data: Buffer) -> bool:
        """Write a new file in one step; False if there is one of this name."""


def refused(path: str, doing: str, reason: OSError) -> SourceError:
    """Return the error for a failed request."""
    return SourceError(f"{path!r} cannot be {doing}: {reported(reason)}")


def reported(reason: Exception) -> str:
    """Return why a request failed, in one line."""
    if isinstance(reason, FileNotFoundError):
        return "there is no such file or bucket; check the name"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return next(iter(str(reason).splitlines()), type(reason).__name__)


# --- Stores behind a file system of pyarrow or fsspec: `filesystem=`, and `hdfs://` through libhdfs.


class FileSystemStore:
    """A file system with folders."""

    def __init__(self, filesystem: Any) -> None:
        self._files = filesystem

    def list(self, folder: str) -> Iterator[Entry]:
        from pyarrow import fs  # noqa: PLC0415 - slow to load

        found = self._files.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
        return (_entry(info) for info in found if info.type == fs.FileType.File)

    def entry(self, key: str) -> Entry:
        from pyarrow import fs  # noqa: PLC0415 - slow to load

        (found,) = self._files.get_file_info([key])
        if found.type != fs.FileType.File:
            raise FileNotFoundError(errno.ENOENT, "there is no such file")
        return _entry(found)

    def tail(self, key: str, size: int) -> tuple[Buffer, int]:
        with self._files.open_input_file(key) as file:
            whole = file.size()
            return file.read_at(min(size, whole), max(whole - size, 0)), whole

    def spans(self, key: str, spans: Sequence[Span]) -> Sequence[Buffer]:
        with self._files.open_input_file(key) as file:
            found = [file.read_at(end - begin, begin) for begin, end in spans]
        if any(len(data) != end - begin for data, (begin, end) in zip(found, spans, strict=True)):
            raise OSError(errno.EIO, "it has become shorter meanwhile")
        return found

    def write(self, key: str, data: Buffer) -> None:
        """Write a file. Its folder is created; a file that appears whole under its name is up to the file system."""
        self._files.create_dir(str(PurePosixPath(key).parent), recursive=True)
        with self._files.open_output_stream(key, compression=None) as file:
            file.write(data)

    def create(self, key: str, data: Buffer) -> bool:
        """Write a file that is not there. Two concurrent writers of one name are not distinguished."""
        try:
            self.entry(key)
        except FileNotFoundError:
            self.write(key, data)
            return True
        return False


def _entry(info: Any) -> Entry:
    return Entry(info.path, info.size or 0, info.mtime_ns or 0)


def arrow_filesystem(given: Any) -> Any:
    """Return a file system of pyarrow for one of pyarrow or of fsspec."""
    from pyarrow import fs  # noqa: PLC0415 - slow to load

    if isinstance(given, fs.FileSystem):
        return given
    if all(hasattr(given, name) for name in ("protocol", "cat_file", "find")):
        return fs.PyFileSystem(fs.FSSpecHandler(given))
    raise EngineError(
        f"filesystem= takes a file system of pyarrow.fs or of fsspec, not a {type(given).__name__}"
    )


@CACHES.results(most=16)
def hadoop(scheme: str, authority: str, pairs: Pairs) -> Store:
    """Open a Hadoop file system: through libhdfs, which starts a Java machine in this process, else by WebHDFS."""
    from pyarrow import fs  # noqa: PLC0415 - slow to load

    from penstock.storage.webhdfs import WebHdfs  # noqa: PLC0415 - loads with the first store

    if pairs or scheme in ("webhdfs", "swebhdfs"):
        return WebHdfs.of(scheme, authority, pairs)
    host, _, port = authority.partition(":")
    try:
        return FileSystemStore(
            fs.HadoopFileSystem(f"{scheme}://{host}" if host else "default", int(port or 0))
        )
    except (OSError, ValueError) as reason:
        if scheme == "hdfs" and "load lib" in str(reason):  # libhdfs, or Java's
            return WebHdfs.of(scheme, authority, pairs)
        raise EngineError(
            f"{scheme}:// cannot be opened through libhdfs; check the address, Java and Hadoop's classes (HADOOP_HOME, "
            "CLASSPATH), or give storage_options={'webhdfs': 'http://namenode:9870'}"
        ) from None


def key_in(uri: Uri) -> str:
    """Return the name of a URI's file in a file system."""
    return f"/{uri.key}" if uri.scheme in (*HADOOP, "file") else f"{uri.authority}/{uri.key}"


# --- Translate the settings of Hadoop's clients, which Spark has as `spark.hadoop.fs.*`, to options of object stores.

PREFIX = "spark.hadoop."
_S3 = {
    "access.key": "access_key_id",
    "secret.key": "secret_access_key",
    "session.token": "session_token",
    "endpoint": "endpoint",
    "endpoint.region": "region",
}
_GS = {
    "fs.gs.auth.service.account.json.keyfile": "service_account",
    "google.cloud.auth.service.account.json.keyfile": "service_account",
}
_TENANT = re.compile(r"https://[^/]+/([^/]+)/oauth2/.*")
_ANONYMOUS = "AnonymousAWSCredentialsProvider"


def options_of(settings: Mapping[str, str], path: str) -> dict[str, str]:
    """Return the options for a URI from Hadoop's settings, named without `spark.hadoop.`.

    >>> options_of({"fs.s3a.access.key": "AK", "fs.s3a.path.style.access": "true"}, "s3://lake/a")
    {'access_key_id': 'AK', 'virtual_hosted_style_request': 'false'}
    """
    uri = Uri.of(path)
    match CLOUD.get("" if uri is None else uri.scheme):
        case "s3":
            assert uri is not None
            return _s3(settings, uri.authority)
        case "gs":
            return {ours: settings[theirs] for theirs, ours in _GS.items() if theirs in settings}
        case "azure":
            assert uri is not None
            return _azure(settings, uri.authority.rpartition("@")[2])
    return _hdfs(settings, uri.authority) if uri is not None and uri.scheme in HADOOP else {}


def _s3(settings: Mapping[str, str], bucket: str) -> dict[str, str]:
    """Read the settings of a bucket, which precede those of all."""
    own, common = f"fs.s3a.bucket.{bucket}.", "fs.s3a."
    given = {
        name: settings.get(own + name) or settings.get(common + name)
        for name in (*_S3, "path.style.access", "connection.ssl.enabled", "aws.credentials.provider")
    }
    found = {ours: value for theirs, ours in _S3.items() if (value := given[theirs])}
    if "endpoint" in found and "://" not in found["endpoint"]:
        scheme = "http" if given["connection.ssl.enabled"] == "false" else "https"
        found["endpoint"] = f"{scheme}://{found['endpoint']}"
    if given["path.style.access"]:
        found["virtual_hosted_style_request"] = str(given["path.style.access"] != "true").lower()
    if _ANONYMOUS in (given["aws.credentials.provider"] or ""):
        found["skip_signature"] = "true"
    return found


def _azure(settings: Mapping[str, str], host: str) -> dict[str, str]:
    """Read the settings of an account, by its host, which precede those of all."""

    def setting(name: str) -> str | None:
        return settings.get(f"{name}.{host}") or settings.get(name)

    tenant = _TENANT.fullmatch(setting("fs.azure.account.oauth2.client.endpoint") or "")
    found = {
        "account_key": setting("fs.azure.account.key"),
        "sas_key": setting("fs.azure.sas.fixed.token"),
        "client_id": setting("fs.azure.account.oauth2.client.id"),
        "client_secret": setting("fs.azure.account.oauth2.client.secret"),
        "tenant_id": None if tenant is None else tenant[1],
    }
    return {name: value for name, value in found.items() if value}


def _hdfs(settings: Mapping[str, str], service: str) -> dict[str, str]:
    """Read the web addresses of name nodes: those of a name service, else the only one.

    >>> _hdfs({"dfs.ha.namenodes.lake": "a,b", "dfs.namenode.http-address.lake.a": "h1:9870",
    ...        "dfs.namenode.http-address.lake.b": "h2:9870"}, "lake")
    {'webhdfs': 'http://h1:9870,http://h2:9870'}
    """
    secure = settings.get("dfs.http.policy") == "HTTPS_ONLY"
    name = f"dfs.namenode.http{'s' * secure}-address"
    nodes = [node.strip() for node in settings.get(f"dfs.ha.namenodes.{service}", "").split(",")]
    found = [settings.get(f"{name}.{service}.{node}") for node in nodes] if nodes[0] else [settings.get(name)]
    addresses = [f"http{'s' * secure}://{address}" for address in found if address]
    return {"webhdfs": ",".join(addresses)} if addresses else {}
