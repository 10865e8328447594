"""How much compiling a kernel is worth.

Measured on the fold kernel of the YSB query (612 LLVM instructions, LLVM built with assertions, as
PyPI's llvmlite is): QUICK 4 ms, FULL 80 ms; the code of FULL ran 2.5 times as fast.
"""

from __future__ import annotations

from enum import StrEnum


class Effort(StrEnum):
    QUICK = "quick"  # no optimisation, LLVM's fast instruction selector: for the first rows
    FULL = "full"  # optimised and vectorised
