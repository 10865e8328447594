"""Hash-consing: nodes of equal structure are one object while any of them is in use.

Plans and expressions built by programs share parts: after `e = e + e` thirty times a tree has 2³⁰ nodes, the graph 31.
Interned nodes are therefore equal exactly if they are identical, and hash by identity: comparing, hashing and looking up
take constant time. Traversals visit each node once (`expr.nodes.ordered`, `plan.graph.ordered`).

The table below is the only state of this module. It holds nodes weakly; threads may share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, TypeVar
from weakref import ref

N = TypeVar("N")


class _Entry(ref[Any]):
    """A weak reference to a node, with the node's key in the table."""

    __slots__ = ("key",)
    key: tuple[object, ...]


_NODES: dict[tuple[object, ...], _Entry] = {}


def _forget(entry: _Entry) -> None:
    if _NODES.get(entry.key) is entry:
        _NODES.pop(entry.key, None)


class _Compared:
    """A part of a key that is compared but not hashed, because hashing it takes long: the schema of a source."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Compared) and (self.value is other.value or self.value == other.value)


class Interning(type):
    """The metaclass of interned nodes: a call returns the existing node of equal structure."""

    _defaults: tuple[object, ...] = ()
    _unhashed: int | None = None

    def __call__(cls, *args: Any, **named: Any) -> Any:
        whole = args if len(args) == len(cls._defaults) and not named else cls._complete(args, named)
        place = cls._unhashed
        key = (
            (cls, *whole)
            if place is None
            else (cls, *whole[:place], _Compared(whole[place]), *whole[place + 1 :])
        )
        try:
            entry = _NODES.get(key)
        except (
            TypeError
        ):  # a part that is not hashable, such as a user's function object, is equal to no other
            return cls._made(args, named)
        found = None if entry is None else entry()
        return _added(key, cls._made(args, named)) if found is None else found

    def _complete(cls, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """Return the values of all fields, in order."""
        if not cls._defaults:
            cls._defaults = tuple(field.default for field in fields(cls))  # type: ignore[arg-type]
        rest = cls._defaults[len(args) :]
        if named:
            names: tuple[str, ...] = cls.__match_args__[len(args) :]  # type: ignore[attr-defined]
            rest = tuple(named.get(name, default) for name, default in zip(names, rest, strict=True))
        return args + rest

    def _made(cls, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        made = super().__call__(*args, **named)
        object.__setattr__(made, "facts", {})
        return made


def _added(key: tuple[object, ...], made: Any) -> Any:
    """Add a node, unless another thread has just added its equal."""
    own = _Entry(made, _forget)
    own.key = key
    while True:
        entry = _NODES.setdefault(key, own)
        found = entry()
        if found is not None:
            return found
        _forget(entry)  # collected, and its callback has not run yet


class InternedNode(metaclass=Interning):
    """The base of frozen dataclasses that are interned; declare them with `eq=False`.

    `facts` caches what is derived from the node, such as its type or schema. Copying and unpickling intern, too.
    """

    __slots__ = ("__weakref__", "facts")
    facts: dict[str, Any]

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Copy and unpickle by construction."""
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]


def ordered(roots: Iterable[N], below: Callable[[N], Sequence[N]]) -> list[N]:
    """List the distinct nodes of a graph, those below a node before it; without recursion, at any depth."""
    found: dict[int, N] = {}
    waiting = [*roots][::-1]
    while waiting:
        node = waiting[-1]
        missing = () if id(node) in found else [child for child in below(node) if id(child) not in found]
        if missing:
            waiting.extend(reversed(missing))
        else:
            found[id(node)] = waiting.pop()
    return list(found.values())


def interned() -> int:
    """Count the nodes in use."""
    return len(_NODES)
