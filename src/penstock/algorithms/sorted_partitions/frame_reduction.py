"""A reduction over frames, whose arguments and condition are columns."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.expr import nodes as ex
from penstock.ir import nodes as ir


@dataclass(frozen=True)
class FrameReduction:
    """A reduction whose arguments and condition are columns."""

    function: str
    args: tuple[str, ...]
    where: str | None
    options: ex.Options
    span: int
    type: pa.DataType

    def as_ir(self) -> ir.Reduction:
        args = tuple(ex.Column(name) for name in self.args)
        where = None if self.where is None else ex.Column(self.where)
        return ir.Reduction(self.function, args, where, self.options)
