"""Run the eight algorithms on small windows, with kernels that are compared at each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from penstock.algorithms.joins.eager import Eager, ProgressiveMerge, SymmetricHash
from penstock.algorithms.joins.joiner import Kernels
from penstock.algorithms.joins.kernels import build
from penstock.algorithms.joins.no_partitioning import NoPartitioning
from penstock.algorithms.joins.radix import Radix
from penstock.algorithms.joins.sort_merge import MultiPass, MultiWay
from penstock.codegen.native import compile_kernel
from penstock.loop.abi import JoinSpec
from penstock.loop.interpret import interpret
from penstock.loop.nodes import Buffer, Kernel
from penstock.runtime.kernels import Call
from tests.unit.codegen.compare import agree, both

LAZY: dict[str, Callable[[Kernels], Any]] = {
    "npj": NoPartitioning,
    "prj": lambda kernels: Radix(kernels, bits=2),
    "mway": lambda kernels: MultiWay(kernels, run_rows=8),
    "mpass": lambda kernels: MultiPass(kernels, run_rows=8),
}
WORKERS = {"shj": SymmetricHash, "pmj": partial(ProgressiveMerge, step=9)}
EAGER: dict[str, Callable[[Kernels], Any]] = {
    f"{name}_{scheme}": lambda kernels, name=name, worker=worker, scheme=scheme: Eager(
        f"{name}_{scheme}", kernels, worker, biclique=scheme == "jb"
    )
    for name, worker in WORKERS.items()
    for scheme in ("jm", "jb")
}


@cache
def native(name: str, spec: JoinSpec) -> Call:
    return compile_kernel(build(name, spec))


@cache
def compared(name: str, spec: JoinSpec) -> Call:
    """A kernel that runs interpreted, after its compiled forms have left the same memory."""
    kernel = build(name, spec)
    natives = both(kernel)

    def call(values: Mapping[str, Any]) -> int:
        given = only_parameters(kernel, values)
        agree(kernel, given, natives)
        return interpret(kernel, given)

    return call


def only_parameters(kernel: Kernel, values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        parameter.name: values[parameter.name] for parameter in kernel.params if _needed(parameter, values)
    }


def _needed(parameter: Any, values: Mapping[str, Any]) -> bool:
    return not isinstance(parameter, Buffer) or values[parameter.name] is not None


def codes(numbers: Sequence[int]) -> np.ndarray:
    return np.array(numbers, np.int64)


def listed(pairs: tuple[np.ndarray, np.ndarray]) -> list[tuple[int, int]]:
    return sorted(zip(pairs[0].tolist(), pairs[1].tolist(), strict=True))


def lazily(
    name: str, left: np.ndarray, right: np.ndarray, threads: int = 1, kernels: Kernels = native
) -> tuple[int, list[tuple[int, int]]]:
    """The count, and the pairs in order."""
    joiner = LAZY[name](kernels)
    return joiner.join(left, right, "count", threads), listed(joiner.join(left, right, "pairs", threads))


def eagerly(
    name: str,
    arrivals: Sequence[tuple[int, np.ndarray]],
    threads: int = 1,
    kernels: Kernels = native,
) -> tuple[int, list[tuple[int, int]]]:
    """The same, for pieces of (side, codes) that arrive one after the other."""
    joiner = EAGER[name](kernels)
    counting, pairing = joiner.open(threads, "count"), joiner.open(threads)
    count = sum(counting.push(side, piece) for side, piece in arrivals) + counting.finish()
    found = [pairing.push(side, piece) for side, piece in arrivals]
    found.append(pairing.close())
    return count, sorted(pair for pairs in found for pair in listed(pairs))


def expected(left: np.ndarray, right: np.ndarray) -> list[tuple[int, int]]:
    """What the definition says: nested loops."""
    return [(int(i), int(j)) for i in range(len(left)) for j in np.flatnonzero(right == left[i])]
