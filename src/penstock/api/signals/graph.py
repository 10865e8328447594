"""The graph of a signal: temporal objects with shared parts, and the streams they sample."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.api.stream import Stream
from penstock.errors import SchemaMismatchError, SignalError
from penstock.ir.signals.nodes import END, START, Body, Object, Program, Sampled, renamed, sources_of
from penstock.types.time import Time

# The time of a feedback's past results, before they are combined with the signals it reads.
NOWHEN = Time("", pa.null(), None)


@dataclass(frozen=True, slots=True)
class Graph:
    """The objects of a signal by name, sources before readers, and the streams by input name.

    An object's name is a digest of its definition: equal definitions are one object.
    """

    objects: dict[str, Object]
    inputs: dict[str, Stream]
    keys: pa.Schema
    time: Time

    def defined(self, body: Body, schema: pa.Schema) -> tuple[Graph, str]:
        """Add an object."""
        name = hashlib.sha256(repr((body, schema)).encode()).hexdigest()[:16]
        return Graph(
            {**self.objects, name: Object(name, body, schema)}, self.inputs, self.keys, self.time
        ), name

    def program(self, output: str) -> tuple[Program, tuple[Stream, ...]]:
        """Number the objects that the output depends on, and the streams they sample."""
        needed = self._needed(output)
        inputs = list(
            dict.fromkeys(object_.body.input for object_ in needed if isinstance(object_.body, Sampled))
        )
        names = {object_.name: f"n{i}" for i, object_ in enumerate(needed)}
        names |= {token: str(i) for i, token in enumerate(inputs)}
        objects = tuple(
            Object(names[object_.name], renamed(object_.body, names), object_.schema) for object_ in needed
        )
        streams = tuple(self.inputs[token] for token in inputs)
        return Program(objects, names[output], self.keys, self.time), streams

    def _needed(self, output: str) -> list[Object]:
        reached, waiting = set[str](), [output]
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += sources_of(self.objects[name].body)
        return [obj for name, obj in self.objects.items() if name in reached]


def sampled(
    stream: Stream, body: Sampled, schema: pa.Schema, keys: pa.Schema, time: Time
) -> tuple[Graph, str]:
    """Return a graph of the samples of a stream."""
    return Graph({}, {body.input: stream}, keys, time).defined(body, schema)


def joined(graphs: Sequence[Graph]) -> Graph:
    """Combine the graphs of several signals, which must have the same time and keys."""
    first = next((graph for graph in graphs if graph.time != NOWHEN), graphs[0])
    for other in graphs:
        if other.time != NOWHEN:
            _require_alike(first, other)
    objects = {name: this for graph in graphs for name, this in graph.objects.items()}
    inputs = {token: data for graph in graphs for token, data in graph.inputs.items()}
    return Graph(objects, inputs, first.keys, first.time)


def _require_alike(first: Graph, other: Graph) -> None:
    if first.keys != other.keys:
        raise SignalError(
            f"signals are combined key by key, but one is by {_described(first.keys)} and the other by "
            f"{_described(other.keys)}; give both the same by=, renaming or casting columns before .signal(...)"
        )
    if first.time != other.time:
        raise SignalError(
            f"signals are combined instant by instant, but one counts time as {first.time.type} and the other "
            f"as {other.time.type}; cast one of the columns in its table, or declare its stream with the other's type"
        )


def _described(keys: pa.Schema) -> str:
    return ", ".join(f"{key.name!r} ({key.type})" for key in keys) or "nothing"


def refuse_clash(taken: Sequence[str], names: Sequence[str]) -> None:
    """Reject value names that clash; a single value is named `value`, several keep their names."""
    clash = next((name for name in names if name in {START, END, *taken}), None)
    if clash is not None:
        raise SchemaMismatchError(
            f"the signal would have a value named {clash!r}, which its intervals or keys are called; give it another "
            "name, to a column in a list, as in signal([pk.col('x').alias('level')])"
        )


def refuse_taken(keys: Sequence[str]) -> None:
    """Reject keys with the names of interval columns."""
    clash = next((name for name in keys if name in {START, END}), None)
    if clash is not None:
        raise SchemaMismatchError(
            f"the key {clash!r} is called as a bound of the signal's intervals is; rename the column first"
        )
