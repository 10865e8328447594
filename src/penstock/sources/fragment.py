"""A fragment of a dataset: the unit that one task reads, described without reading it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

from penstock.errors import SourceError
from penstock.sources.paths import FILE_FORMATS, Partition


@dataclass(frozen=True, slots=True)
class Fragment:
    """A file, or some of its row groups.

    `row_groups` is a half-open range, None for a whole file; `rows` is None if unknown.
    `time_min` and `time_max` are ticks of the dataset's time column and enclose every time that is not null;
    None without statistics. `ordered` is True if the writer of the file declares its rows sorted by time, and None if
    unknown. `partition` holds values that apply to every row. `rows` excludes the rows that `deletes` lists
    (`row_deletes.py`). `size` counts the bytes of all columns, uncompressed. `renamed` lists columns with another name in
    the file: (our name, the file's name).

    >>> piece = Fragment("day=1/a.parquet", "parquet", (0, 2), rows=10, partition=(("day", "1"),))
    >>> Fragment.from_json(piece.to_json()) == piece
    True
    """

    path: str
    format: str
    row_groups: tuple[int, int] | None = None
    rows: int | None = None
    time_min: int | None = None
    time_max: int | None = None
    ordered: bool | None = None
    partition: Partition = ()
    size: int | None = None
    deletes: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> str:
        """Encode the fragment as text, for example to send it to another machine."""
        # `asdict` copies first, and takes four times as long.
        values = {name: getattr(self, name) for name in _NAMES}
        return json.dumps(values, ensure_ascii=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Fragment:
        """Decode the output of `to_json`, rejecting anything else."""
        try:
            return _checked(json.loads(text))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise SourceError(
                "a fragment of a dataset cannot be read back: it was not written by this version"
            ) from None

    def joins(self, other: Fragment) -> bool:
        """Check whether another fragment continues where this one ends."""
        ends, begins = self.row_groups, other.row_groups
        return (
            (self.path, self.format, self.partition, self.renamed)
            == (other.path, other.format, other.partition, other.renamed)
            and ends is not None
            and begins is not None
            and ends[1] == begins[0]
        )


_NAMES = tuple(field.name for field in fields(Fragment))


def joined(fragments: Iterable[Fragment], rows: int) -> Iterator[Fragment]:
    """Merge adjacent fragments of a file up to `rows` rows."""
    held: list[Fragment] = []
    count = 0
    for fragment in fragments:
        count += fragment.rows or 0
        if held and not (held[-1].joins(fragment) and count <= rows):
            yield _join(held)
            held, count = [], fragment.rows or 0
        held.append(fragment)
    if held:
        yield _join(held)


def _join(parts: Sequence[Fragment]) -> Fragment:
    first, last = parts[0], parts[-1]
    if len(parts) == 1 or first.row_groups is None or last.row_groups is None:
        return first
    return replace(
        first,
        row_groups=(first.row_groups[0], last.row_groups[1]),
        rows=_of_all(sum, [part.rows for part in parts]),
        size=_of_all(sum, [part.size for part in parts]),
        time_min=_of_all(min, [part.time_min for part in parts]),
        time_max=_of_all(max, [part.time_max for part in parts]),
        ordered=_ordered(parts),
        deletes=tuple(text for part in parts for text in part.deletes),
    )


def _of_all(choose: Callable[[Iterable[int]], int], numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return choose(known) if len(known) == len(numbers) else None


def _ordered(parts: Sequence[Fragment]) -> bool | None:
    follow = all(
        before.time_max is not None and after.time_min is not None and before.time_max <= after.time_min
        for before, after in pairwise(parts)
    )
    return True if follow and all(part.ordered for part in parts) else None


def _checked(given: dict[str, object]) -> Fragment:
    """Build a fragment from values of the right types."""
    match given:
        case {
            "path": str(path),
            "format": str(format),
            "row_groups": None | [int(), int()] as groups,
            "rows": None | int() as rows,
            "time_min": None | int() as first,
            "time_max": None | int() as last,
            "ordered": None | bool() as ordered,
            "partition": list(partition),
            "size": None | int() as size,
            "deletes": list(deletes),
            "renamed": list(renamed),
            **rest,
        } if not rest and format in FILE_FORMATS:
            range_ = None if groups is None else (int(groups[0]), int(groups[1]))
            values = tuple(
                (_text(name), None if value is None else _text(value)) for name, value in partition
            )
            names = tuple((_text(ours), _text(theirs)) for ours, theirs in renamed)
            gone = tuple(_text(delete) for delete in deletes)
            return Fragment(path, format, range_, rows, first, last, ordered, values, size, gone, names)
    raise ValueError


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
