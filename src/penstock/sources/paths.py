"""Resolve paths, folders and globs to files, their format, and the values in their folder names.

A folder is read recursively. Names that begin with a dot or an underscore are not data
(`_SUCCESS`, `_delta_log`), as is usual in a lake. Folders named `column=value`, below a given folder
or at or after the first wildcard of a glob, give every row of their files that value.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from penstock.errors import SourceError, redacted
from penstock.storage.access import LOCAL, Access
from penstock.storage.filesystems import Entry
from penstock.storage.uri import resolved
from penstock.types.choices import one_of

# --- Resolve folders and globs in a store, by the rules of local ones, from one list of all files below the fixed part.

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
        return _alone(path, access) or _stored_below(path, access)
    return _stored_below(path, access) or _alone(path, access)


def _alone(path: str, access: Access) -> list[StoredFile]:
    entry = access.entry(path)
    return [] if entry is None else [StoredFile(path, entry, ())]


def _stored_below(folder: str, access: Access) -> list[StoredFile]:
    root = folder.rstrip("/") + "/"
    return [file for file in _stored_files(root, access) if not any(map(_hidden, _parts(file.path, root)))]


def _matching(pattern: str, access: Access) -> list[StoredFile]:
    """List what matches a glob: files, and all files below folders."""
    root = fixed_part(pattern)
    fits = _pattern(pattern[len(root) :])
    found = []
    for file in _stored_files(root, access):
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


def _stored_files(root: str, access: Access) -> Iterator[StoredFile]:
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


Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Partition = tuple[tuple[str, str | None], ...]

FILE_FORMATS = ("parquet", "arrow", "csv", "json")
TABLES = ("delta", "iceberg")

_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # integers that round-trip through text
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class NoFilesError(SourceError):
    """No files exist yet. Every other error about a path is permanent."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file, and the values in its folder names. A store also gives its size and the time it was written."""

    path: str
    partition: Partition = ()
    size: int | None = field(default=None, compare=False)
    written: int | None = field(default=None, compare=False)


def find(paths: Paths, even: bool = True, access: Access = LOCAL) -> tuple[FoundFile, ...]:
    """List the files of paths, folders and globs, sorted within each.

    If `even`, all files must lie in folders for the same columns.
    """
    files = (file for one in _listed(paths) for file in _readable(resolved(os.fspath(one)), access))
    found = tuple({file.path: file for file in files}.values())
    if not found:
        raise SourceError(
            "no paths are given; give a path, a glob such as 'events/*.parquet', or a list of them"
        )
    if even:
        _refuse_uneven(found)
    return found


def require_file(path: str) -> None:
    """Reject anything but a regular file before opening it: reading a pipe or a device may never end."""
    mode = Path(path).stat().st_mode
    if not stat.S_ISREG(mode):
        raise _irregular(path, mode)


def _irregular(path: str, mode: int) -> SourceError:
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}
    kind = kinds.get(stat.S_IFMT(mode), "a device")
    return SourceError(f"{path!r} is {kind}, not a regular file; only files are read")


def _listed(paths: object) -> list[str | os.PathLike[str]]:
    """Normalise one path or several. An empty path is rejected, since it would mean the working directory."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    several: list[Any] = list(given) if isinstance(given, Iterable) else [given]
    for reduction in several:
        if not isinstance(reduction, (str, os.PathLike)) or not os.fspath(reduction):
            raise SourceError(
                f"files are named by strings or paths that are not empty, not by {reduction!r}; "
                "give a path, a glob such as 'events/*.parquet', or a list of them"
            )
    return several


def _readable(pattern: str, access: Access) -> list[FoundFile]:
    if access.reaches(pattern):
        return _stored(pattern, access)
    try:
        return _matches(pattern)
    except SourceError:
        raise
    except OSError as reason:
        raise SourceError(
            f"cannot look for files at {redacted(pattern)!r:.200}: {reason.strerror}; check the path and its rights"
        ) from None


def _stored(pattern: str, access: Access) -> list[FoundFile]:
    found = stored_files(pattern, access)
    if not found:
        raise NoFilesError(
            f"no file matches {pattern!r}; check the bucket, the path and the rights to list it"
        )
    return [_found(file) for file in found]


def _found(file: StoredFile) -> FoundFile:
    return FoundFile(file.path, values_of_folders(file.folders), file.entry.size, file.entry.written)


def _matches(pattern: str) -> list[FoundFile]:
    if Path(pattern).is_file():
        return [FoundFile(pattern)]
    if Path(pattern).is_dir():
        files = [FoundFile(path, _partition(path, pattern)) for path in _below(pattern)]
        if not files:
            raise NoFilesError(f"the folder {pattern!r} holds no files; check the path")
        return files
    root = fixed(pattern)
    found = sorted(glob.iglob(pattern, recursive=True))  # noqa: PTH207 - Path.glob rejects absolute patterns
    paths = dict.fromkeys(path for path_given in found for path in _files(path_given))
    if not paths:
        if Path(root).is_dir():
            os.scandir(root).close()  # a glob treats an unreadable folder as empty
        raise NoFilesError(f"no file matches {pattern!r}; check the path and the working directory")
    return [FoundFile(path, _partition(path, root)) for path in paths]


def _files(path: str) -> list[str]:
    if Path(path).is_dir():
        return list(_below(path))
    if Path(path).exists():  # a dangling link is left to the reader
        require_file(path)
    return [path]


def _below(folder: str) -> Iterator[str]:
    """Walk all folders below one, in the order of whole paths."""
    for entry in sorted(os.scandir(folder), key=lambda item: item.name):
        if entry.name.startswith(("_", ".")) and "=" not in entry.name:
            continue
        if entry.is_dir():
            yield from _below(entry.path)
        elif entry.is_file() or not Path(entry.path).exists():
            yield entry.path
        else:
            require_file(entry.path)


def fixed(pattern: str) -> str:
    """Return the part of a glob before its first wildcard."""
    parts = Path(pattern).parts
    until = next((place for place, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return str(Path(*parts[:until]))


def _partition(path: str, root: str) -> Partition:
    """Parse the values in the folder names between the root and the file."""
    return values_of_folders(Path(path).parent.parts[len(Path(root).parts) :])


def values_of_folders(folders: Iterable[str]) -> Partition:
    """Parse the values in folder names; other folders have none."""
    pairs = (folder.partition("=") for folder in folders)
    return tuple((unquote(name), _value(text)) for name, sign, text in pairs if sign and name)


def _value(text: str) -> str | None:
    return None if text == _NO_VALUE else unquote(text)


def _refuse_uneven(found: Sequence[FoundFile]) -> None:
    """Reject files if only some of them lie in folders for a column: the others' rows would lack it."""
    first = found[0]
    names = [name for name, _ in first.partition]
    for file in found:
        if [name for name, _ in file.partition] != names:
            raise SourceError(
                f"the file {file.path!r} lies in other partition folders than {first.path!r}; "
                "read them apart, or by a glob that takes one kind"
            )
    if len(set(names)) < len(names):
        raise SourceError(f"the file {first.path!r} lies in two folders for one column; rename one")


def partition_fields(found: Sequence[FoundFile]) -> list[pa.Field]:
    """Infer the types of folder values: integer, date or string."""
    columns = ([name for name, _ in found[0].partition]) if found else []
    return [
        pa.field(name, _inferred([file.partition[place][1] for file in found]))
        for place, name in enumerate(columns)
    ]


def _inferred(texts: Sequence[str | None]) -> pa.DataType:
    known = {text for text in texts if text is not None}
    if known and all(_INTEGER.fullmatch(text) for text in known):
        return pa.int64()
    if known and all(_DATE.fullmatch(text) for text in known):
        return pa.date32()
    return pa.string()


def format_of(found: Sequence[FoundFile], given: str | None) -> str:
    """Return the format of files, from their names unless it is given."""
    if given is not None:
        if not one_of(given, FILE_FORMATS):
            raise SourceError(
                f"there is no format {given!r:.60}; there are {', '.join(FILE_FORMATS + TABLES)}"
            )
        return given
    first = _by_suffix(found[0].path)
    for file in found:
        if _by_suffix(file.path) != first:
            raise SourceError(
                f"the files {found[0].path!r} and {file.path!r} have different formats; "
                "give a glob that takes one kind, or format="
            )
    return first


def _by_suffix(path: str) -> str:
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    known = [suffix for suffix in suffixes if suffix in _SUFFIXES]
    if not known:
        raise SourceError(
            f"the name {path!r} does not determine the format; give format={'|'.join(FILE_FORMATS)!r}"
        )
    return _SUFFIXES[known[-1]]
