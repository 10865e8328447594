"""Resolve folders and globs in a store, by the rules of local ones, from one list of all files below the fixed part."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.storage.access import Access
from penstock.storage.filesystems import Entry

_MARKERS = ("/", "_$folder$")  # objects that tools write in place of folders


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a store, and the folders between the given one, or the first wildcard, and the file."""

    path: str
    entry: Entry
    folders: tuple[str, ...]


def stored_files(path: str, access: Access) -> list[StoredFile]:
    """List the files of a path, a folder or a glob, in the order of local ones."""
    if glob.has_magic(path):
        return _matching(path, access)
    if "." in path.rpartition("/")[2]:  # probably a file
        return _alone(path, access) or _below(path, access)
    return _below(path, access) or _alone(path, access)


def _alone(path: str, access: Access) -> list[StoredFile]:
    entry = access.entry(path)
    return [] if entry is None else [StoredFile(path, entry, ())]


def _below(folder: str, access: Access) -> list[StoredFile]:
    root = folder.rstrip("/") + "/"
    return [file for file in _listed(root, access) if not any(map(_hidden, _parts(file.path, root)))]


def _matching(pattern: str, access: Access) -> list[StoredFile]:
    """List what matches a glob: files, and all files below folders."""
    root = fixed_part(pattern)
    fits = _pattern(pattern[len(root) :])
    found = []
    for file in _listed(root, access):
        parts = _parts(file.path, root)
        ends = (
            end
            for end in range(len(parts) + 1)
            if fits.fullmatch("".join(f"{part}/" for part in parts[:end]))
            and not any(map(_hidden, parts[end:]))
        )
        if (end := next(ends, None)) is not None:
            found.append(("/".join(parts[:end]), parts, file))
    return [file for _, _, file in sorted(found, key=lambda one: one[:2])]


def fixed_part(pattern: str) -> str:
    """Return the folders of a glob before its first wildcard.

    >>> fixed_part("s3://lake/events/day=*/*.parquet")
    's3://lake/events/'
    """
    if not glob.has_magic(pattern):
        return pattern.rstrip("/") + "/"
    scheme, sign, rest = pattern.rpartition("://")
    parts = rest.split("/")
    until = next(place for place, part in enumerate(parts) if glob.has_magic(part))
    return scheme + sign + "".join(f"{part}/" for part in parts[:until])


def _listed(root: str, access: Access) -> Iterator[StoredFile]:
    files = [
        StoredFile(path, entry, tuple(_parts(path, root)[:-1]))
        for path, entry in access.list(root)
        if path.startswith(root) and not path.endswith(_MARKERS)
    ]
    return iter(sorted(files, key=lambda file: _parts(file.path, root)))


def _parts(path: str, root: str) -> list[str]:
    return path[len(root) :].split("/")


def _hidden(name: str) -> bool:
    return name.startswith(("_", ".")) and "=" not in name


def _pattern(text: str) -> re.Pattern[str]:
    """Translate a glob, relative to its fixed part. Wildcards match no leading dot, and `**` any number of folders."""
    parts = [part for part in text.split("/") if part]
    return re.compile(
        "".join(r"(?:[^/.][^/]*/)*" if part == "**" else _part(part) + "/" for part in parts), re.DOTALL
    )


def _part(part: str) -> str:
    """Translate one name of a glob.

    >>> bool(re.fullmatch(_part("a?[!x]*.csv"), "abc-1.csv")), bool(re.fullmatch(_part("*"), ".a"))
    (True, False)
    """
    made, at = [] if part.startswith(".") else [r"(?!\.)"], 0
    while at < len(part):
        letter, at = part[at], at + 1
        end = part.find("]", at + 1 + (part[at : at + 1] == "!")) if letter == "[" else -1
        if end >= 0:
            inside = part[at:end].replace("\\", r"\\").replace("[", r"\[").replace("^", r"\^")
            made.append(f"[{'^' + inside[1:] if inside.startswith('!') else inside}]")
            at = end + 1
        else:
            made.append({"*": "[^/]*", "?": "[^/]"}.get(letter, re.escape(letter)))
    return "".join(made)
