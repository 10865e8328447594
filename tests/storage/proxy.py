"""A loopback HTTP proxy before a store: it counts requests, and injects latency, errors and broken responses."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SLOW_DOWN = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate</Message></Error>"
_HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive"}


@dataclass(frozen=True)
class Request:
    """One request as the store saw it."""

    method: str
    path: str
    range: str | None


@dataclass
class Faults:
    """What happens to a request. Each takes the request and its number, from 1 on, among those counted so far."""

    status: Callable[[Request, int], int | None] = lambda request, number: None
    cut: Callable[[Request, int], bool] = lambda request, number: False
    refuse: Callable[[Request, int], bool] = lambda request, number: False
    latency: float = 0.0
    bytes_per_second: float | None = None


@dataclass
class Proxy:
    """The address of a running proxy, the requests so far, and the faults to inject."""

    address: str
    requests: list[Request] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    lock: Any = field(default_factory=threading.Lock)

    def gets(self, suffix: str = "") -> list[Request]:
        """Return the reads of objects whose name ends as given."""
        return [
            request for request in self.requests if request.method == "GET" and request.path.endswith(suffix)
        ]

    def heal(self) -> None:
        """Forget all requests, and inject no more faults."""
        self.requests.clear()
        self.faults = Faults()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy
    backend: tuple[str, int]

    def log_message(self, *args: object) -> None:
        """Stay silent."""

    def _serve(self) -> None:
        body = self._body()
        request = Request(self.command, self.path.partition("?")[0], self.headers.get("Range"))
        with self.proxy.lock:
            self.proxy.requests.append(request)
            number = len(self.proxy.requests)
        faults = self.proxy.faults
        if faults.latency:
            time.sleep(faults.latency)  # the latency of a network, not a wait for an event
        if faults.refuse(request, number):
            self._break_off()
            return
        status = faults.status(request, number)
        if status is not None:
            self._answer(status, {"Content-Type": "application/xml"}, SLOW_DOWN, faults)
            return
        status, headers, data = self._forwarded(body)
        if faults.cut(request, number):
            self._head(status, headers, len(data))
            self.wfile.write(data[: len(data) // 2])
            self._break_off()
            return
        self._answer(status, headers, data, faults)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = _serve

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return b"".join(parts)

    def _forwarded(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(*self.backend, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        kept = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP}
        return answer.status, kept, data

    def _head(self, status: int, headers: dict[str, str], length: int) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() != "content-length":
                self.send_header(name, value)
        reported = headers.get("Content-Length", str(length)) if self.command == "HEAD" else str(length)
        if status != http.client.NO_CONTENT:
            self.send_header("Content-Length", reported)
        self.end_headers()

    def _answer(self, status: int, headers: dict[str, str], data: bytes, faults: Faults) -> None:
        self._head(status, headers, len(data))
        if self.command == "HEAD":
            return
        if faults.bytes_per_second is not None:
            time.sleep(len(data) / faults.bytes_per_second)  # the rate of a connection
        self.wfile.write(data)

    def _break_off(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def running(backend: tuple[str, int]) -> Iterator[Proxy]:
    """Run a proxy before the store at an address, on a free port of the loopback interface."""
    handler = type("Handler", (_Handler,), {"backend": backend})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    handler.proxy = proxy = Proxy(f"http://127.0.0.1:{server.server_address[1]}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
