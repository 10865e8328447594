"""Optimisation levels of compiled kernels.

Measured on the fold kernel of the YSB query (633 lines of LLVM; LLVM built with assertions, as PyPI's
llvmlite is; two busy cores): QUICK 9 ms of CPU time, FULL 100 ms; FULL's code ran 2.3 times as fast.
"""

from __future__ import annotations

from enum import StrEnum


class OptimisationLevel(StrEnum):
    QUICK = "quick"  # no optimisation, LLVM's fast instruction selector: for the first rows
    FULL = "full"  # optimised and vectorised
