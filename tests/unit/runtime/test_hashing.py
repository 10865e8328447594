"""Buckets of hash tables: entries that leave take no other with them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.key_encoding import bucket_of, buckets_for, empty_bucket, hash_words, home

WORDS = st.lists(
    st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 40), min_size=1, max_size=24, unique=True
)


@given(WORDS)
def test_a_search_begins_where_kernels_begin(words: list[int]) -> None:
    hashes = hash_words(np.array(words))
    expected = ((hashes ^ (hashes >> np.uint64(32))) & np.uint64(63)).tolist()
    assert [home(word, 64) for word in words] == expected


@given(WORDS, st.data())
def test_entries_that_leave_take_no_other_with_them(words: list[int], data: st.DataObject) -> None:
    keys, size = np.array(words), 32
    buckets = buckets_for(hash_words(keys), size)
    left = data.draw(st.sets(st.sampled_from(range(len(words)))))
    for entry in left:
        bucket = bucket_of(buckets, words[entry], entry)
        assert bucket is not None
        empty_bucket(buckets, bucket, keys)
        assert bucket_of(buckets, words[entry], entry) is None
    stay = [entry for entry in range(len(words)) if entry not in left]
    assert sorted(buckets[buckets > 0].tolist()) == [entry + 1 for entry in stay]
    for entry in stay:  # a lookup ends at an empty bucket
        place = home(words[entry], size)
        while buckets[place] != entry + 1:
            assert buckets[place] != 0
            place = (place + 1) % size
