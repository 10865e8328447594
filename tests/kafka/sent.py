"""A message without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sent:
    """Answers as a message of confluent-kafka does."""

    of_partition: int
    at: int
    held: bytes | None
    by_key: bytes | None = None
    when: int | None = None
    beside: Sequence[tuple[str, bytes | None]] | None = None

    def partition(self) -> int:
        return self.of_partition

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        return self.held

    def key(self) -> bytes | None:
        return self.by_key

    def timestamp(self) -> tuple[int, int]:
        return (0, 0) if self.when is None else (1, self.when)

    def headers(self) -> Sequence[tuple[str, bytes | None]] | None:
        return self.beside
