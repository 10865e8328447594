"""Parcels on their way through Spark: small ones together, large ones apart, all of them as they were."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.spark.exchange import ShufflePayload, packed, unpacked

MEGABYTE = 1 << 20


def payloads(sizes: list[int]) -> list[ShufflePayload]:
    return [ShufflePayload(0, 1, number, f"rows/{number}", bytes(size)) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        ([], []),
        ([0], [1]),
        ([100, 0, 100], [3]),
        ([MEGABYTE, MEGABYTE, 1], [1, 1, 1]),
        ([1, MEGABYTE, 1, 1], [2, 2]),
    ],
)
def test_small_parcels_share_a_batch(sizes: list[int], batches: list[int]) -> None:
    given = payloads(sizes)
    made = list(packed(given))
    assert [batch.num_rows for batch in made] == batches
    assert list(unpacked(made)) == given


def test_a_large_parcel_does_not_wait_for_the_next() -> None:
    taken: list[int] = []

    def one_by_one() -> Iterator[ShufflePayload]:
        for payload in payloads([MEGABYTE, MEGABYTE]):
            taken.append(payload.part)
            yield payload

    assert next(packed(one_by_one())).num_rows == 1
    assert taken == [0]
