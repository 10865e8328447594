"""Object stores through `obstore`, the Python face of the Rust crate `object_store`.

It reads the end of a file of unknown size by one request and repeats requests that were throttled, failed or broke off
(decision 100). Its messages quote addresses, which may hold signatures: only a status and a code are taken from them.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

from penstock.caches import CACHES
from penstock.errors import EngineError
from penstock.storage.filesystems import Buffer, Entry, Span
from penstock.storage.options import CLIENT, RETRY, Pairs, environment, for_kind, with_profile
from penstock.storage.uri import CLOUD, Uri

T = TypeVar("T")

# The default of 30 seconds for a whole request is too short for a large range over a slow connection.
_TIMEOUTS = {"timeout": "15m", "read_timeout": "30s", "connect_timeout": "5s"}
_RETRIES = 10
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_INSTANCE = re.compile(r"169\.254\.|metadata\.google|[Cc]redential")
_SAID = {
    401: "the store does not accept the credentials",
    403: "the store denies access: the credentials are missing, wrong or lack a right",
    429: "the store is throttling",
    503: "the store is throttling",
}
_CREDENTIALS = "no credentials were found, or they were not accepted; give storage_options=, or set the environment of the store"


class BrokenOffError(OSError):
    """The answer broke off, and `object_store` did not repeat the request."""


class CloudStore:
    """A bucket, or a container. Azure has no requests for the end of a file: its size is requested first."""

    def __init__(self, store: Any, ends: bool = True) -> None:
        self._store, self._ends = store, ends

    def list(self, folder: str) -> Iterator[Entry]:
        """List all files below a folder. The store answers a thousand per request.

        `object_store` repeats requests, but not after the answer to a list broke off: then the list goes on behind the last key.
        """
        prefix, last, left = folder.strip("/") or None, None, _RETRIES
        while True:
            try:
                for page in self._pages(prefix, last):
                    yield from map(_entry, page)
                    last = page[-1]["path"] if page else last
            except BrokenOffError:
                left -= 1
                if not left:
                    raise
                continue
            return

    def _pages(self, prefix: str | None, after: str | None) -> Iterator[Any]:
        pages = _asked(lambda obstore: obstore.list(self._store, prefix, offset=after, chunk_size=1000))
        while (page := _asked(lambda _: next(pages, None))) is not None:
            yield page

    def entry(self, key: str) -> Entry:
        return _entry(_asked(lambda obstore: obstore.head(self._store, key)))

    def tail(self, key: str, size: int) -> tuple[Buffer, int]:
        if not self._ends:
            whole = self.entry(key).size
            return (self._span(key, (max(whole - size, 0), whole)) if whole else b""), whole
        try:
            return _asked(lambda obstore: _tail(obstore, self._store, key, size))
        except FileNotFoundError:
            raise
        except OSError:
            # A store answers a request for the end of an empty file with an error, or with no range.
            if self.entry(key).size == 0:
                return b"", 0
            raise

    def spans(self, key: str, spans: Sequence[Span]) -> Sequence[Buffer]:
        if len(spans) == 1:
            return [self._span(key, spans[0])]
        with ThreadPoolExecutor(len(spans) or 1) as pool:
            return list(pool.map(lambda span: self._span(key, span), spans))

    def _span(self, key: str, span: Span) -> Buffer:
        begin, end = span
        found = memoryview(_asked(lambda obstore: obstore.get_range(self._store, key, start=begin, end=end)))
        if len(found) != end - begin:
            raise OSError(errno.EIO, "it has become shorter meanwhile")
        return found

    def write(self, key: str, data: Buffer) -> None:
        _asked(lambda obstore: obstore.put(self._store, key, _bytes(data)))

    def create(self, key: str, data: Buffer) -> bool:
        try:
            _asked(lambda obstore: obstore.put(self._store, key, _bytes(data), mode="create"))
        except FileExistsError:
            return False
        return True


def _bytes(data: Buffer) -> memoryview:
    """Return data as unsigned bytes, the only kind that obstore takes; buffers of Arrow are of signed ones."""
    return memoryview(data).cast("B")


def _entry(meta: Any) -> Entry:
    return Entry(meta["path"], meta["size"], round(meta["last_modified"].timestamp() * 1e9))


def _tail(obstore: Any, store: Any, key: str, size: int) -> tuple[Buffer, int]:
    found = obstore.get(store, key, options={"range": {"suffix": size}})
    return memoryview(found.bytes()), found.meta["size"]


def connect(uri: Uri, pairs: Pairs) -> CloudStore:
    """Open the store of a URI. Nothing is requested yet; connections are shared by all streams of one store."""
    return _connected(uri.root, CLOUD[uri.scheme], pairs, environment())


@CACHES.results(most=64)
def _connected(root: str, kind: str, pairs: Pairs, surroundings: Pairs) -> CloudStore:
    """Open a store. Keys that expire are replaced in the surroundings: then another store is opened."""
    del surroundings
    options = for_kind(pairs, kind)
    options = with_profile(options) if kind == "s3" else options
    client = {**_TIMEOUTS, **{name: _plain(value) for name, value in options.items() if name in CLIENT}}
    config = {name: value for name, value in options.items() if name not in CLIENT | RETRY}
    retries = _retries(options)
    try:
        return CloudStore(
            _asked(
                lambda obstore: obstore.store.from_url(
                    root, config=config, client_options=client, retry_config=retries
                )
            ),
            ends=kind != "azure",
        )
    except OSError as reason:
        raise EngineError(f"the store {root!r} cannot be opened: {reason.strerror}") from None


def _plain(text: str) -> bool | str:
    return {"true": True, "false": False}.get(text, text)


def _retries(options: dict[str, str]) -> dict[str, Any]:
    try:
        most = int(options.get("max_retries", _RETRIES))
        within = float(options.get("retry_timeout", "180").removesuffix("s"))
    except ValueError:
        raise EngineError("max_retries is a whole number, and retry_timeout a number of seconds") from None
    return {"max_retries": most, "retry_timeout": timedelta(seconds=within)}


# --- requests -------------------------------------------------------------------------------------------


class _Process:
    """The process whose threads serve requests. They do not survive `fork`: a request there would wait for ever."""

    number: int | None = None


def _asked(request: Callable[[Any], T]) -> T:
    """Make a request. Failures become an `OSError` without the address of the request."""
    obstore = _obstore()
    if _Process.number not in (None, os.getpid()):
        raise EngineError(
            "this process was forked from one that had used an object store, whose threads it lacks; start processes "
            "with multiprocessing.get_context('spawn')"
        )
    _Process.number = os.getpid()
    try:
        return request(obstore)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "there is no such file or bucket") from None
    except obstore.exceptions.BaseError as reason:
        raise _failure(obstore.exceptions, reason) from None
    except (ValueError, TypeError, OverflowError):
        raise OSError(errno.EINVAL, "the store does not take these storage_options, or this name") from None


def _failure(kinds: Any, reason: Exception) -> Exception:
    text = str(reason)
    if isinstance(reason, kinds.UnknownConfigurationKeyError):
        name = re.search(r"key: '([A-Za-z0-9_.]{1,60})'", text)
        return EngineError(
            f"storage_options has no option {name[1] if name else ''!r} for this store; the names are those of object_store, "
            "such as access_key_id, secret_access_key, region and endpoint"
        )
    if isinstance(reason, kinds.AlreadyExistsError):
        return FileExistsError(errno.EEXIST, "there is a file of this name")
    status, code = _STATUS.search(text), _CODE.search(text)
    if isinstance(reason, kinds.PermissionDeniedError | kinds.UnauthenticatedError) and status is None:
        return PermissionError(errno.EACCES, _CREDENTIALS)
    if status is None:
        kind = OSError if "RetryError" in text else BrokenOffError  # of the former, all repetitions failed
        return kind(errno.EIO, _unanswered(text))
    number = int(status[1])
    if number == 404:
        return FileNotFoundError(errno.ENOENT, "there is no such file or bucket")
    said = _SAID.get(number, "the store refuses the request")
    return OSError(errno.EIO, f"{said} (status {number}{', ' + code[1] if code else ''})")


def _unanswered(text: str) -> str:
    """Say what failed where the store gave no answer. Keys of an instance are requested from a service of its network."""
    if _INSTANCE.search(text):
        return _CREDENTIALS
    if "kind: Timeout" in text:
        return "the store did not answer in time"
    return "the store cannot be reached, or broke off its answer; check the endpoint and the network"


def _obstore() -> Any:
    try:
        import obstore  # noqa: PLC0415 - an optional dependency
        import obstore.exceptions  # noqa: PLC0415
        import obstore.store  # noqa: PLC0415
    except ImportError:
        raise EngineError("object stores need the package obstore; pip install 'penstock[cloud]'") from None
    return obstore
