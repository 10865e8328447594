"""The call of a kernel over states per key, bound to its arrays once: a push overwrites the words that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.loop.abi import Binding
from penstock.runtime.kernels import KernelCall


class BoundCall:
    """A native kernel with all of its arguments, for batches of one schema whose columns are read as plain values.

    It holds the arrays whose addresses it was bound to. Whatever enlarges or moves them replaces them, so to compare
    them is to know whether it still fits.
    """

    __slots__ = ("_arrays", "_call", "_columns", "_frame", "_others", "_schema")

    def __init__(
        self, call: KernelCall, bindings: tuple[Binding, ...], schema: pa.Schema, values: Mapping[str, Any]
    ) -> None:
        self._call, self._schema = call, schema
        plain = all(binding.role == "values" for binding in bindings)
        unset = {binding.parameter: 0 for binding in bindings}
        self._frame = call.standing({**values, **unset}) if plain else None
        self._arrays = [(name, value) for name, value in values.items() if isinstance(value, np.ndarray)]
        self._columns: list[tuple[int, int, int]] = []
        self._others: list[tuple[str, int]] = []
        if self._frame is None:
            return
        at = self._frame.places
        for binding in bindings:
            place = schema.get_field_index(binding.column)
            width = schema.field(place).type.bit_width // 8
            self._columns.append((at[binding.parameter], place, width))
        numbers = (name for name, value in values.items() if not isinstance(value, np.ndarray))
        self._others = [(name, at[name]) for name in numbers if name in at]

    @property
    def native(self) -> bool:
        return self._frame is not None

    def fits(self, schema: pa.Schema, values: Mapping[str, Any]) -> bool:
        """Whether the arrays are those it was bound to, and batches have the same columns."""
        for name, array in self._arrays:
            if values[name] is not array:
                return False
        return schema is self._schema or bool(schema.equals(self._schema))

    def run(self, arrays: Sequence[pa.Array], values: Mapping[str, Any]) -> int:
        """Call the kernel for the columns of a batch; `values` has the numbers."""
        frame = self._frame
        assert frame is not None
        words = frame.words
        for name, place in self._others:
            words[place] = values[name]
        for word, column, width in self._columns:
            array = arrays[column]
            data = array.buffers()[1]
            words[word] = 0 if data is None else data.address + array.offset * width
        return self._call.run(frame.start)
