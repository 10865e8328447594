"""Start Python workers as pyspark does, with immediate TCP acknowledgement.

Spark sends a task in several small segments, and its end in more. TCP delays a small segment until the previous one is
acknowledged, and a receiver without data to send delays the acknowledgement by 40 ms (Nagle's algorithm with delayed
acknowledgement). Immediate acknowledgement saves most of the elapsed time of a small task.

Spark starts this module by name (`spark.python.daemon.module`) in sessions of `pk.spark_session`. The module imports no
other Penstock module: workers are forked from it, and no thread may run in it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from pyspark import daemon

Worker = Callable[[socket.socket, bool], int]
"""What pyspark's daemon calls in a worker for each task: with its connection, and whether that is authenticated."""


def prompt(work: Worker) -> Worker:
    """Set TCP_QUICKACK before each task. The kernel resets the option once replies are sent."""

    def worker(connection: socket.socket, authenticated: bool) -> int:
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return work(connection, authenticated)

    return worker


def main() -> None:
    """Run pyspark's daemon, unchanged where TCP_QUICKACK does not exist (outside Linux)."""
    if hasattr(socket, "TCP_QUICKACK"):
        daemon.worker = prompt(daemon.worker)  # type: ignore[assignment]
    daemon.manager()


if __name__ == "__main__":
    main()
