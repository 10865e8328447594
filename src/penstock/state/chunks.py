"""Split state tables into chunks of at most 1 MB, so that a store rewrites only those that changed.

A chunk holds the rows whose words (the hash of their keys, then their time) share a bit prefix, as short as keeps the
chunk small enough. So changes to other keys do not move a key's rows; without keys a chunk is a range of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.errors import StateError
from penstock.runtime.buffers import indices, values_view
from penstock.state.state_table import StateTable, key_hashes, seen, time_words

MOST_CHUNK_BYTES = 1 << 20


def cut(kept: StateTable, most: int = MOST_CHUNK_BYTES) -> dict[str, pa.Table]:
    """The chunks of a table by the bit prefix of their rows' words. An empty table yields no chunks."""
    table = _in_order(kept)
    if table.num_rows == 0:
        return {}
    if table.nbytes <= most:
        return {"": table}
    words = _words(kept, table)
    order = np.lexsort(words[::-1]) if words else np.arange(table.num_rows)
    rows, words = table.take(indices(order)), [word[order] for word in words]
    return {
        bits: table.take(indices(np.sort(order[lo:hi])))
        for bits, lo, hi in _parts(rows, words, 0, table.num_rows, "", most)
    }


def _in_order(kept: StateTable) -> pa.Table:
    names = dict.fromkeys((*kept.ranks, *kept.keys))
    if not names or kept.table.num_rows < 2 or _ordered([seen(kept.table, name) for name in names]):
        return kept.table.combine_chunks()
    import pyarrow.compute as pc  # noqa: PLC0415 - takes 50 ms to load, and most runs save nothing

    order = pc.sort_indices(kept.table, sort_keys=[(name, "ascending") for name in names])
    return kept.table.take(order).combine_chunks()


def _ordered(columns: Sequence[pa.Array]) -> bool:
    """Whether rows are already sorted, as those of pane tables mostly are; False if the check would be expensive."""
    if any(column.type != pa.int64() or column.null_count for column in columns):
        return False
    alike = np.ones(len(columns[0]) - 1, bool)
    for column in map(values_view, columns):
        if (alike & (column[1:] < column[:-1])).any():
            return False
        alike &= column[1:] == column[:-1]
    return True


def _words(kept: StateTable, table: pa.Table) -> list[np.ndarray]:
    hashed = [key_hashes([seen(table, name) for name in kept.keys])] if kept.keys else []
    return [*hashed, *(time_words(seen(table, name)) for name in kept.ranks[:1])]


def _parts(
    rows: pa.Table, words: Sequence[np.ndarray], lo: int, hi: int, bits: str, most: int
) -> Iterator[tuple[str, int, int]]:
    """Split rows lo … hi, which share the prefix `bits`, by the next bit until they are small enough."""
    size = rows.slice(lo, hi - lo).nbytes
    if size <= most or hi - lo == 1:
        yield bits, lo, hi
        return
    if len(bits) == 64 * len(words):
        yield from _by_number(lo, hi, bits, -(-size // most))
        return
    word, bit = divmod(len(bits), 64)
    middle = lo + _first_with_bit(words[word][lo:hi], bit)
    for digit, begin, end in (("0", lo, middle), ("1", middle, hi)):
        if begin < end:
            yield from _parts(rows, words, begin, end, bits + digit, most)


def _first_with_bit(ordered: np.ndarray, bit: int) -> int:
    """The first of ordered words, equal in the preceding bits, that has this bit set."""
    tail = (1 << (64 - bit)) - 1
    smallest = int(ordered[0]) & ~tail | 1 << (63 - bit)
    return int(np.searchsorted(ordered, np.uint64(smallest)))


def _by_number(lo: int, hi: int, bits: str, parts: int) -> Iterator[tuple[str, int, int]]:
    """Split rows of one key and one time by position."""
    bounds = [lo + (hi - lo) * part // parts for part in range(parts + 1)]
    for part, (begin, end) in enumerate(pairwise(bounds)):
        if begin < end:
            yield f"{bits}.{part}", begin, end


# --- Describe how the query that saved a state differs from the query that loads it.

_SHOWN = 4
_OUTPUT = "the output"
_HIDDEN = ("types", "source", "sources", "left", "right", "strict")
_LISTS = ("types", "results", "keys", "columns", "look-backs")


def require_same(saved: Mapping[str, str], here: Mapping[str, str]) -> None:
    r"""Refuse the state of another query, with an error that describes the differences.

    Entries `name + "\n" + part` are descriptions only: two queries are the same if all other entries are equal.
    """
    old, new = (_whole(query) for query in (saved, here))
    if old == new:
        return
    pairs = sorted(_paired(old, new), key=lambda pair: _is_input(pair[1] or pair[0] or ""))
    found = [text for one, other in pairs for text in _differences(one, other, saved, here)]
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    reported = "; ".join(found[:_SHOWN]) or "its steps read each other in another way"
    raise StateError(
        f"the state was saved by another query: {reported}{more}; continue it with that query, or begin without state="
    )


def _whole(query: Mapping[str, str]) -> dict[str, str]:
    """The identifying entries: one for each object."""
    return {name: text for name, text in query.items() if "\n" not in name}


def _paired(old: Mapping[str, str], new: Mapping[str, str]) -> list[tuple[str | None, str | None]]:
    """Pair each object that differs with its counterpart: one of the same name, else the next of the same kind.

    Objects are numbered, so a filter added before a window changes the window's name.
    """
    pairs: list[tuple[str | None, str | None]] = [
        (name, name) for name in old if name in new and old[name] != new[name] and name != _OUTPUT
    ]
    gone = [name for name in old if name not in new]
    for name in [name for name in new if name not in old]:
        alike = next((candidate for candidate in gone if _kind(old[candidate]) == _kind(new[name])), None)
        if alike is not None:
            gone.remove(alike)
        pairs.append((alike, name))
    pairs += [(name, None) for name in gone]
    return pairs or [(_OUTPUT, _OUTPUT)]


def _is_input(name: str) -> bool:
    """Whether an object is an input stream; inputs are named last, because their columns follow from the query."""
    return "(stream " in name


def _differences(
    one: str | None, other: str | None, saved: Mapping[str, str], here: Mapping[str, str]
) -> list[str]:
    before, after = _named_parts(one, saved), _named_parts(other, here)
    if one is None or other is None:
        about = ", ".join(f"{part} {text}" for part, text in (before or after).items() if part not in _HIDDEN)
        return [f"{other or one} {'is new' if one is None else 'is gone'}{f' ({about})' if about else ''}"]
    if not before or not after:  # the number of shards, or a state from a version without descriptions
        return [f"{other} was {saved[one]} and is {here[other]}"]
    parts = [part for part in {**before, **after} if before.get(part, "") != after.get(part, "")]
    parts = [part for part in parts if part not in _HIDDEN] or [part for part in parts if part == "types"]
    reported = [_of_part(other, part, before.get(part, ""), after.get(part, "")) for part in parts]
    if _is_input(other) and one != other:
        reported = [f"{one} is gone and {other} is new"]
    constant = _digest(saved[one]) != _digest(here[other]) and all(
        before.get(part) == after.get(part) for part in _HIDDEN
    )
    return reported or (
        [f"a constant in {other} is another (only digests of constants are stored)"] if constant else []
    )


def _kind(identity: str) -> str:
    return identity.partition(" ")[0]


def _digest(identity: str) -> str:
    return identity.partition(" of ")[0]


def _named_parts(name: str | None, query: Mapping[str, str]) -> dict[str, str]:
    prefix = f"{name}\n"
    return {key.removeprefix(prefix): text for key, text in query.items() if key.startswith(prefix)}


def _of_part(name: str, part: str, old: str, new: str) -> str:
    before, after = (text.split("; ") if text else [] for text in (old, new))
    gone, come = (
        [entry for entry in before if entry not in after],
        [entry for entry in after if entry not in before],
    )
    if part in _LISTS and come and not gone:
        return f"{name} has further {part}: {', '.join(come)}"
    if part in _LISTS and gone and not come:
        return f"{name} has lost {part}: {', '.join(gone)}"
    if part in _LISTS and gone and come:
        return f"{name} had the {part} {', '.join(gone)} and now has {', '.join(come)}"
    return f"the {part} of {name} was {old or 'none'} and is {new or 'none'}"
