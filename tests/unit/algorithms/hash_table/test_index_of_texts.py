"""A key of texts is numbered by its codes until the first null, and by a hash table from then on."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.sorted_partitions.build import indexer
from penstock.codegen.native import compile_kernel

TEXTS = st.one_of(
    st.none(), st.sampled_from(["", "a", "\0", "\0\0", "a\0", "ä"]), st.text("ab\0", max_size=20)
)
FACTORY = KernelFactory(compile_kernel)


def numbers_of(batches: list[list[str | None]]) -> tuple[list[str | None], list[str | None]]:
    index = indexer(FACTORY)(1)
    numbers = [index.number([pa.array(batch, pa.string())]).tolist() for batch in batches]
    values = index.values([pa.string()])[0].to_pylist()
    assert len(values) == len(index)
    rows = [value for batch in batches for value in batch]
    return rows, [values[number] for part in numbers for number in part]


@given(st.lists(st.lists(TEXTS, max_size=30), max_size=6))
def test_the_number_of_a_text_leads_back_to_it(batches: list[list[str | None]]) -> None:
    rows, back = numbers_of(batches)
    assert rows == back


@pytest.mark.parametrize("length", range(20))
def test_texts_of_one_length_that_differ_in_a_byte_are_different_keys(length: int) -> None:
    texts = ["x" * length, *("x" * place + "y" + "x" * (length - place - 1) for place in range(length))]
    rows, back = numbers_of([texts, ["\0" * width for width in range(length)], [None], texts])
    assert rows == back
