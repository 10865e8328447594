"""Describe how the query that saved a state differs from the query that loads it."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import StateError

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
    raise StateError(f"the state was saved by another query: {reported}{more}")


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
    before, after = _parts(one, saved), _parts(other, here)
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


def _parts(name: str | None, query: Mapping[str, str]) -> dict[str, str]:
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
