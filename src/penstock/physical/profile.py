"""What a sample of an operator's rows has shown: a plain value, from which `specialise.py` chooses variants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log

KEY_BUCKETS = 256
HITTER = 1 / 16  # share of the rows from which on a key is a heavy hitter
# What the profile holds for the sample as a whole: rows, those with a time before the row above, and runs of equal keys.
SAMPLE_WORDS = 3
KEY_WORDS = 2  # the smallest and the largest word of a key
CONJUNCT_WORDS = 2
MASKED = 6  # conjuncts of which every combination is counted
BUCKET_WORDS = 3  # rows of a key range; the candidate for their majority, and its votes
_LOW, _HIGH = (1 << 63) - 1, -(1 << 63)


@dataclass(frozen=True, slots=True)
class Passed:
    """The rows that pass a conjunct: of all rows (`alone`), and of those that pass the conjuncts before it (`after`)."""

    alone: int
    after: int


@dataclass(frozen=True, slots=True)
class Profile:
    """A sample of `rows` rows.

    `conjuncts` are in the order of the filter. `masks` counts rows by the set of the first conjuncts that they pass, bit i
    for conjunct i. `keys` are the smallest and the largest word of each key among the rows
    that pass. `histogram` counts the first key's words in 256 ranges of equal width; `hitters` are words that make up
    more than 1/16 of the rows each, with their share. `nulls` counts those of each column that holds some.
    """

    rows: int
    conjuncts: tuple[Passed, ...] = ()
    masks: tuple[int, ...] = ()
    keys: tuple[tuple[int, int], ...] = ()
    histogram: tuple[int, ...] = ()
    hitters: tuple[tuple[int, float], ...] = ()
    distinct: int = 0
    nulls: tuple[tuple[str, int], ...] = ()
    disorder: int = 0
    runs: int = 0

    @property
    def skew(self) -> float:
        """The share of the most frequent key; 0 if none is frequent."""
        return max((share for _, share in self.hitters), default=0.0)

    @property
    def run_length(self) -> float:
        """How many neighbouring rows have the same key, on average; 0 without keys."""
        return sum(self.histogram) / self.runs if self.runs else 0.0


@dataclass(frozen=True, slots=True)
class ProfileLayout:
    """The words in which an instrumented kernel counts: of the sample, conjuncts, their sets, keys, buckets and registers."""

    conjuncts: int
    keys: int
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.registers + (KEY_BUCKETS if self.keys else 0))

    def conjunct(self, number: int) -> int:
        """The place of a conjunct's counts."""
        return SAMPLE_WORDS + CONJUNCT_WORDS * number

    @property
    def masked(self) -> int:
        """The number of conjuncts whose combinations are counted."""
        return min(self.conjuncts, MASKED)

    @property
    def masks(self) -> int:
        """The place of the counts of sets of conjuncts."""
        return self.conjunct(self.conjuncts)

    def key(self, number: int) -> int:
        """The place of a key's smallest and largest word."""
        return self.masks + (1 << self.masked) + KEY_WORDS * number

    @property
    def buckets(self) -> int:
        return self.key(self.keys)

    @property
    def registers(self) -> int:
        """The place of the registers that estimate the number of distinct keys."""
        return self.buckets + (KEY_BUCKETS * BUCKET_WORDS if self.keys else 0)

    def start(self) -> list[int]:
        """The words before the first row."""
        words = [0] * self.size
        for number in range(self.keys):
            words[self.key(number)], words[self.key(number) + 1] = _LOW, _HIGH
        return words

    def read(self, words: Sequence[int], nulls: Sequence[tuple[str, int]] = ()) -> Profile:
        """Read the profile of a sample."""
        rows, disorder, runs = words[:SAMPLE_WORDS]
        passed = [words[self.conjunct(i) : self.conjunct(i) + CONJUNCT_WORDS] for i in range(self.conjuncts)]
        keys = [tuple(words[self.key(i) : self.key(i) + KEY_WORDS]) for i in range(self.keys)]
        buckets = words[self.buckets : self.registers]
        return Profile(
            rows,
            tuple(Passed(alone, after) for alone, after in passed),
            tuple(words[self.masks : self.key(0)]),
            _ranges(keys),
            tuple(buckets[::BUCKET_WORDS]),
            _hitters(buckets),
            distinct(words[self.registers :]),
            tuple(nulls),
            disorder,
            runs,
        )


def _ranges(keys: Sequence[tuple[int, ...]]) -> tuple[tuple[int, int], ...]:
    """The range of each key component, 0 … 0 if all were null; none if there was no key at all.

    >>> _ranges([(3, 5), (_LOW, _HIGH)]), _ranges([(_LOW, _HIGH)])
    (((3, 5), (0, 0)), ())
    """
    found = tuple((low, high) if low <= high else (0, 0) for low, high in keys)
    return found if any(low <= high for low, high in keys) else ()


def _hitters(buckets: Sequence[int]) -> tuple[tuple[int, float], ...]:
    """The candidates whose votes beat the other keys of their range so far that they are frequent among all rows."""
    rows = sum(buckets[::BUCKET_WORDS])
    found = []
    for place in range(0, len(buckets), BUCKET_WORDS):
        counted, word, votes = buckets[place : place + BUCKET_WORDS]
        share = (counted + votes) / 2 / max(rows, 1)  # exact if the range has one such word
        if votes and share >= HITTER and votes * 4 > counted:
            found.append((word, share))
    return tuple(sorted(found, key=lambda hitter: -hitter[1]))


def distinct(registers: Sequence[int]) -> int:
    """Estimate the number of distinct values from the longest runs of zero bits of their hashes, within some 7 %.

    >>> distinct([0] * 256), distinct([1] + [0] * 255)
    (0, 1)
    """
    if not registers:
        return 0
    many = len(registers)
    empty = sum(1 for register in registers if not register)
    raw = 0.7182725932495458 * many * many / sum(2.0**-register for register in registers)
    if raw <= 2.5 * many and empty:
        return round(many * log(many / empty))
    return round(raw)
