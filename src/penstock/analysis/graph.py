"""Reader counts of the object graph, and replacement of definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from penstock.ir.nodes import Object, Program, Signals, sources_of
from penstock.ir.signals import nodes as temporal


def readers(program: Program) -> Counter[str]:
    """Count the readers of each object; the program's output counts as one reader."""
    return Counter([*(name for obj in program.objects for name in sources_of(obj.body)), program.output])


def redefine(program: Program, name: str, definitions: Iterable[Object]) -> Program:
    """Replace one object by several, the last of which has its name, and drop unread objects."""
    objects: list[Object] = []
    for obj in program.objects:
        objects.extend(definitions if obj.name == name else (obj,))
    return without_unread(Program(tuple(objects), program.output))


def without_unread(program: Program) -> Program:
    """Drop the objects the output does not depend on."""
    wanted = {program.output}
    for obj in reversed(program.objects):
        if obj.name in wanted:
            wanted.update(sources_of(obj.body))
    return Program(tuple(obj for obj in program.objects if obj.name in wanted), program.output)


class Redefinitions:
    """A program whose objects are replaced one by one, each in constant time, with the reader counts of every moment."""

    def __init__(self, program: Program) -> None:
        self.readers = readers(program)
        self._objects = {obj.name: obj for obj in program.objects}

    def __getitem__(self, name: str) -> Object:
        return self._objects[name]

    def redefine(self, this: Object, definitions: Iterable[Object]) -> None:
        """Replace an object by several, the last of which has its name."""
        for definition in definitions:
            self._objects[definition.name] = definition
            self.readers.update(sources_of(definition.body))
        self._release(sources_of(this.body))

    def _release(self, sources: tuple[str, ...]) -> None:
        """Count readers down; an object without readers reads nothing."""
        waiting = list(sources)
        while waiting:
            name = waiting.pop()
            self.readers[name] -= 1
            if not self.readers[name]:
                waiting += sources_of(self._objects[name].body)


def with_signals(program: Program, rewrite: Callable[[temporal.Program], temporal.Program]) -> Program:
    """Rewrite the temporal program of every signal."""
    objects = [
        replace(obj, body=replace(obj.body, program=rewrite(obj.body.program)))
        if isinstance(obj.body, Signals)
        else obj
        for obj in program.objects
    ]
    return Program(tuple(objects), program.output)
