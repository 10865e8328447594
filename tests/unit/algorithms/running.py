"""Run a kernel every way there is; the interpreter's memory is what tests look at."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from penstock.codegen.native import NativeKernel
from penstock.loop.interpret import interpret
from penstock.loop.nodes import Kernel
from tests.unit.codegen.compare import agree, both


@cache
def compiled(kernel: Kernel) -> tuple[NativeKernel, ...]:
    return both(kernel)


def run(kernel: Kernel, values: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Give what a kernel returns and the memory it leaves, the same interpreted and compiled."""
    agree(kernel, values, compiled(kernel))
    memory = {
        name: value.copy() if isinstance(value, np.ndarray) else value for name, value in values.items()
    }
    return interpret(kernel, memory), memory
