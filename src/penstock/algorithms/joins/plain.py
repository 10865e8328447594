"""The join algorithms of this package in plain Python: an introduction for readers, and an oracle for tests.

Each yields the pairs of rows (left, right) with equal codes. The order of pairs depends on the algorithm.

>>> left, right = [7, 8, 7], [8, 7]
>>> [sorted(join(left, right)) for join in (no_partitioning, radix, sort_merge)]
[[(0, 1), (1, 0), (2, 1)], [(0, 1), (1, 0), (2, 1)], [(0, 1), (1, 0), (2, 1)]]
>>> sorted(pair for arrived in symmetric_hash([(0, 7), (1, 8), (0, 8), (1, 7), (0, 7)]) for pair in arrived)
[(0, 1), (1, 0), (2, 1)]
>>> [sorted(pairs) for pairs in progressive_merge([(0, 7), (1, 8), (0, 8), (1, 7), (0, 7)], step=3)]
[[(1, 0)], [(2, 1)], [(0, 1)]]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, product

Pair = tuple[int, int]
Numbered = list[tuple[int, int]]  # (code, row), sorted


def no_partitioning(left: Sequence[int], right: Sequence[int]) -> Iterator[Pair]:
    """Build one hash table from the left side and probe it with the right."""
    table: dict[int, list[int]] = defaultdict(list)
    for row, code in enumerate(left):
        table[code].append(row)
    return ((match, row) for row, code in enumerate(right) for match in table.get(code, ()))


def radix(left: Sequence[int], right: Sequence[int], bits: int = 2) -> Iterator[Pair]:
    """Partition both sides by a digit of the code, then join partition by partition."""
    for digit in range(1 << bits):
        mine, theirs = (
            [row for row, code in enumerate(side) if code % (1 << bits) == digit] for side in (left, right)
        )
        for a, b in no_partitioning([left[row] for row in mine], [right[row] for row in theirs]):
            yield mine[a], theirs[b]


def sort_merge(left: Sequence[int], right: Sequence[int]) -> Iterator[Pair]:
    """Sort both sides and merge them."""
    return match(*(sorted((code, row) for row, code in enumerate(side)) for side in (left, right)))


def match(left: Numbered, right: Numbered) -> Iterator[Pair]:
    """Pair the rows with equal codes of two sorted sides."""
    groups = {code: [row for _, row in rows] for code, rows in groupby(right, key=lambda coded: coded[0])}
    return ((row, other) for code, row in left for other in groups.get(code, ()))


def symmetric_hash(arrivals: Iterable[tuple[int, int]]) -> Iterator[list[Pair]]:
    """For each arrival (side, code): insert into that side's table, and probe the other table."""
    tables: tuple[dict[int, list[int]], ...] = (defaultdict(list), defaultdict(list))
    rows = [0, 0]
    for side, code in arrivals:
        tables[side][code].append(rows[side])
        matches = tables[1 - side].get(code, [])
        yield [(rows[0], match_) if side == 0 else (match_, rows[1]) for match_ in matches]
        rows[side] += 1


def progressive_merge(arrivals: Sequence[tuple[int, int]], step: int) -> Iterator[list[Pair]]:
    """Sort and join every `step` arrivals as a run; finally yield the pairs across runs."""
    rows, runs = [0, 0], []
    for begin in range(0, len(arrivals), step):
        run: tuple[Numbered, Numbered] = ([], [])
        for side, code in arrivals[begin : begin + step]:
            run[side].append((code, rows[side]))
            rows[side] += 1
        runs.append((sorted(run[0]), sorted(run[1])))
        yield list(match(*runs[-1]))
    apart = (pair for pair in product(enumerate(runs), repeat=2) if pair[0][0] != pair[1][0])
    yield [pair for (_, (left, _)), (_, (_, right)) in apart for pair in match(left, right)]
