"""The compiled functions of rings: `run` and `watch` work without the interpreter's lock, the others are brief and keep it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache

HAS_RING = os.name == "posix"

_I64, _WORDS = ctypes.c_int64, ctypes.c_void_p


class NativeRing:
    """The functions of rings: built on first use, never unloaded, since threads may be executing them."""

    def __init__(self) -> None:
        from penstock.codegen import ring_module as module  # noqa: PLC0415 - loads LLVM
        from penstock.codegen.batch_reader import BATCH_READER  # noqa: PLC0415
        from penstock.codegen.llvm import OptimisationLevel  # noqa: PLC0415
        from penstock.codegen.target import Loaded, to_object  # noqa: PLC0415

        self._loaded = loaded = Loaded(to_object(module.ring_module(), OptimisationLevel.FULL))
        self.reader = BATCH_READER.address
        self.nothing = loaded.address_of(module.NOTHING)
        self.run: Callable[[int], int] = ctypes.CFUNCTYPE(_I64, _WORDS)(loaded.address_of(module.RUN))
        brief = ctypes.PYFUNCTYPE
        self.put: Callable[[int, int, int], int] = brief(_I64, *[_WORDS] * 3)(loaded.address_of(module.PUT))
        self.commit: Callable[[int, int, int, int, int], int] = brief(_I64, *[_WORDS] * 4, _I64)(
            loaded.address_of(module.COMMIT)
        )
        swap: Callable[[int, int, int], int] = brief(_I64, _WORDS, _I64, _I64)(loaded.address_of(module.SWAP))
        self.swap = swap
        self.watch: Callable[[int, int], int] = ctypes.CFUNCTYPE(_I64, _WORDS, _I64)(
            loaded.address_of(module.WATCH)
        )


@cache
def native_ring() -> NativeRing:
    """Return the functions, compiled once."""
    return NativeRing()
