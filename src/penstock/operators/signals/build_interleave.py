"""Bind the merge of partitions by time to its kernels."""

from __future__ import annotations

import numpy as np

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.loop.nodes import MACHINE_TYPES, Type
from penstock.operators.signals.interleaving import Interleaver, Types
from penstock.operators.signals.kernels.interleave import CAPACITY_BITS, interleave, part_of_partitions
from penstock.runtime.kernels import Call


def interleaver(kernel_factory: KernelFactory, threads: int) -> Interleaver:
    """Return the interleaver, which merges the intervals of partitions by time."""

    def call(of_points: Types, of_partitions: Types) -> Call:
        points, partitions = _machine(of_points), _machine(of_partitions)
        return kernel_factory.call(("interleave", points, partitions), lambda: interleave(points, partitions))

    return Interleaver(
        kernel_factory.call("part_of_partitions", part_of_partitions), call, 1 << CAPACITY_BITS, threads
    )


def _machine(types: Types) -> tuple[Type, ...]:
    return tuple(MACHINE_TYPES[f"{np.dtype(dtype).kind}{8 * dtype.itemsize}"] for dtype in types)
