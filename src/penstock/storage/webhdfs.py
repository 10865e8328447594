"""HDFS by WebHDFS, the REST protocol of its name nodes and data nodes, where there is no libhdfs.

    GET name-node/webhdfs/v1/path?op=OPEN&offset=0&length=10  ->  307, Location: data-node/...  ->  200, the bytes

A new file is written under a hidden name and renamed, so that readers see all of it or nothing.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from penstock.errors import EngineError
from penstock.storage.filesystems import Buffer, Entry, Span
from penstock.storage.options import Pairs

PORT, SECURE_PORT = 9870, 9871  # of name nodes since Hadoop 3
HDFS_OPTIONS = ("webhdfs", "user", "delegation")
_ROOT = "/webhdfs/v1"
_RETRIES = 5
_TIMEOUT = 60.0
_CONNECTIONS = 8
_REDIRECTS = (http.client.TEMPORARY_REDIRECT, http.client.FOUND)
_REPEATED = (http.client.TOO_MANY_REQUESTS, *range(500, 600))
_NAME = re.compile(r"[A-Za-z]{1,60}")
_ELSEWHERE = ("StandbyException", "RetriableException")  # another name node is the active one, or will be


class _Unanswered(Exception):  # noqa: N818 - becomes an OSError when all repetitions failed
    """No answer, or one that requests a retry."""


@dataclass(frozen=True)
class WebHdfs:
    """The files of a cluster. Its name nodes are tried in turn until one is active."""

    nodes: tuple[str, ...]
    user: str | None = None
    delegation: str | None = field(default=None, repr=False)
    pause: float = 0.2

    @staticmethod
    def of(scheme: str, authority: str, pairs: Pairs) -> WebHdfs:
        """Find the addresses of name nodes: those of the options, else that of the URI."""
        options = dict(pairs)
        unknown = [name for name in options if name not in HDFS_OPTIONS]
        if unknown:
            raise EngineError(
                f"storage_options has no option {unknown[0]!r:.60} for {scheme}://; there are {', '.join(HDFS_OPTIONS)}"
            )
        given = options.get("webhdfs") or _of_uri(scheme, authority)
        nodes = tuple(text.strip().rstrip("/") for text in given.split(",") if text.strip())
        parsed = list(map(urlsplit, nodes))
        if not nodes or any(
            url.scheme not in ("http", "https") or not url.hostname or url.username for url in parsed
        ):
            raise EngineError(
                f"{scheme}:// without libhdfs needs the HTTP address of a name node; give "
                f"storage_options={{'webhdfs': 'http://namenode:{PORT}'}}"
            )
        user = options.get("user") or os.environ.get("HADOOP_USER_NAME")
        return WebHdfs(nodes, user, options.get("delegation"))

    # --- a store

    def list(self, folder: str) -> Iterator[Entry]:
        """List all files below a folder, one request for each."""
        try:
            found = self._json("GET", folder, op="LISTSTATUS")["FileStatuses"]["FileStatus"]
        except FileNotFoundError:
            return
        for status in found:
            key = "/".join(filter(None, (folder.rstrip("/"), status["pathSuffix"])))
            if status["type"] == "DIRECTORY":
                yield from self.list(key)
            else:
                yield _entry(key, status)

    def entry(self, key: str) -> Entry:
        status = self._json("GET", key, op="GETFILESTATUS")["FileStatus"]
        if status["type"] != "FILE":
            raise FileNotFoundError(errno.ENOENT, "there is no such file")
        return _entry(key, status)

    def tail(self, key: str, size: int) -> tuple[Buffer, int]:
        whole = self.entry(key).size
        return self._span(key, (max(whole - size, 0), whole)), whole

    def spans(self, key: str, spans: Sequence[Span]) -> Sequence[Buffer]:
        if len(spans) <= 1:
            return [self._span(key, span) for span in spans]
        with ThreadPoolExecutor(min(len(spans), _CONNECTIONS)) as pool:
            return list(pool.map(lambda span: self._span(key, span), spans))

    def _span(self, key: str, span: Span) -> Buffer:
        begin, end = span
        if begin == end:
            return b""
        found = self._asked("GET", key, None, op="OPEN", offset=str(begin), length=str(end - begin))
        if len(found) != end - begin:
            raise OSError(errno.EIO, "it has become shorter meanwhile")
        return found

    def write(self, key: str, data: Buffer) -> None:
        self._renamed(self._hidden(key, data), key, "OVERWRITE")

    def create(self, key: str, data: Buffer) -> bool:
        hidden = self._hidden(key, data)
        try:
            self._renamed(hidden, key, "NONE")
        except FileExistsError:
            self._asked("DELETE", hidden, None, op="DELETE")
            return False
        return True

    def _hidden(self, key: str, data: Buffer) -> str:
        folder = key.rpartition("/")[0]
        hidden = f"{folder}/.penstock-{secrets.token_hex(8)}"
        self._asked("PUT", hidden, data, op="CREATE", overwrite="true")
        return hidden

    def _renamed(self, key: str, to: str, how: str) -> None:
        """Rename a file. A request whose answer was lost may have succeeded: then the file is gone from its old place."""
        try:
            self._asked("PUT", key, None, op="RENAME", destination=to, renameoptions=how)
        except FileNotFoundError:
            self.entry(to)

    # --- requests

    def _json(self, method: str, key: str, **query: str) -> Any:
        text = self._asked(method, key, None, **query)
        try:
            return json.loads(text)
        except ValueError:
            raise OSError(errno.EIO, "the name node's answer is not JSON; check its address") from None

    def _asked(self, method: str, key: str, data: Buffer | None, **query: str) -> bytes:
        """Make a request, again if it failed in passing."""
        reason = ""
        for attempt in range(_RETRIES * len(self.nodes)):
            node = self.nodes[attempt % len(self.nodes)]
            if attempt >= len(self.nodes):
                time.sleep(self.pause * 2 ** min(attempt // len(self.nodes), 5))
            try:
                return self._once(urlsplit(node), method, key, data, query)
            except _Unanswered as failed:
                reason = str(failed)
            except (OSError, http.client.HTTPException) as failed:
                if isinstance(failed, FileNotFoundError | FileExistsError | PermissionError) or (
                    isinstance(failed, OSError) and failed.errno == errno.EINVAL
                ):
                    raise
                reason = "it cannot be reached, or broke off its answer; check the address and the network"
        raise OSError(errno.EIO, f"HDFS gave no answer: {reason}")

    def _once(
        self, node: SplitResult, method: str, key: str, data: Buffer | None, query: Mapping[str, str]
    ) -> bytes:
        identity = {"delegation": self.delegation} if self.delegation else {"user.name": self.user}
        given = {**query, **{name: value for name, value in identity.items() if value}}
        path = f"{node.path}{_ROOT}{quote(key)}?{urlencode(given)}"
        status, place, answer = _exchange(node, method, path, None)
        if status in _REDIRECTS:
            there = urlsplit(place)
            if there.scheme not in ("http", "https") or (node.scheme == "https" and there.scheme != "https"):
                raise OSError(errno.EINVAL, "the name node names a data node without TLS, or none")
            status, _, answer = _exchange(there, method, f"{there.path}?{there.query}", data)
        if status >= http.client.BAD_REQUEST:
            raise _failure(status, answer)
        return answer


def _of_uri(scheme: str, authority: str) -> str:
    host, _, port = authority.rpartition(":") if ":" in authority else (authority, "", "")
    if scheme in ("webhdfs", "swebhdfs"):
        secure = scheme == "swebhdfs"
        return f"http{'s' * secure}://{host}:{port or (SECURE_PORT if secure else PORT)}" if host else ""
    return f"http://{host}:{PORT}" if host else ""


def _exchange(node: SplitResult, method: str, path: str, data: Buffer | None) -> tuple[int, str, bytes]:
    kind = http.client.HTTPSConnection if node.scheme == "https" else http.client.HTTPConnection
    with closing(kind(node.hostname or "", node.port, timeout=_TIMEOUT)) as connection:
        headers = {} if data is None else {"Content-Type": "application/octet-stream"}
        connection.request(method, path, None if data is None else memoryview(data).cast("B"), headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Location") or "", answer.read()


def _entry(key: str, status: Mapping[str, Any]) -> Entry:
    return Entry(key, int(status["length"]), int(status["modificationTime"]) * 1_000_000)


def _failure(status: int, answer: bytes) -> Exception:
    """Return an error with the name of Hadoop's exception, and nothing else of its message."""
    try:
        name = json.loads(answer)["RemoteException"]["exception"]
    except (ValueError, KeyError, TypeError):
        name = ""
    name = name if isinstance(name, str) and _NAME.fullmatch(name) else "no exception named"
    reported = f"status {status}, {name}"
    if name in _ELSEWHERE or status in _REPEATED:
        return _Unanswered(reported)
    if name == "FileAlreadyExistsException":
        return FileExistsError(errno.EEXIST, "there is a file of this name")
    if status == http.client.NOT_FOUND:
        return FileNotFoundError(errno.ENOENT, "there is no such file")
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        return PermissionError(
            errno.EACCES,
            f"HDFS denies access ({reported}); give storage_options={{'user': ...}}, or a token as 'delegation'",
        )
    return OSError(errno.EINVAL, f"HDFS refuses the request ({reported})")
