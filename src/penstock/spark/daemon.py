"""Start Python workers as pyspark does, and let them tell Spark at once what they have read.

Spark sends a task in several small pieces, and its end in more; TCP holds a small piece back until the one before it is
acknowledged, which a receiver that has nothing to say puts off for 40 ms (Nagle's algorithm and delayed acknowledgement,
at their worst together). A worker that acknowledges at once saves most of what a small task takes by the clock.

Spark starts this module by name (`spark.python.daemon.module`) in sessions of `pk.spark_session`. It loads nothing of
ours but itself: workers are forked from it, and no thread may run in it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from pyspark import daemon

Worker = Callable[[socket.socket, bool], int]
"""What pyspark's daemon calls in a worker for each task: with its connection, and whether that has told the secret."""


def prompt(work: Worker) -> Worker:
    """Acknowledge at once while a task is read; the kernel forgets it when answers flow, so each task says it again."""

    def worker(connection: socket.socket, authenticated: bool) -> int:
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return work(connection, authenticated)

    return worker


def main() -> None:
    """Run pyspark's daemon; where the kernel cannot be told (outside Linux), as it is."""
    if hasattr(socket, "TCP_QUICKACK"):
        daemon.worker = prompt(daemon.worker)  # type: ignore[assignment]
    daemon.manager()


if __name__ == "__main__":
    main()
