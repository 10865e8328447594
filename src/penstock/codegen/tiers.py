"""Two-tier compilation: start with quickly compiled code, continue with optimised code.

A small query ends before optimised code would exist; a large one would run for long on slow code. A kernel
therefore starts at the QUICK level. Once its calls have taken longer than `patience`, it is compiled at the
FULL level in the background and swapped in between two calls. Both levels compute the same bits, so results
do not depend on the time of the swap.

The cache may evict code at any time. Between two calls only the cache references the code, so eviction frees
it. A later call looks the code up or compiles it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from weakref import ref

from penstock.codegen.cache import KernelCache
from penstock.codegen.llvm import OptimisationLevel
from penstock.codegen.morsel_scheduler import HAS_THREADS, ArgumentFrame
from penstock.codegen.native import Argument, Arguments, Code, compile_kernel, compile_object
from penstock.loop.nodes import Block, For, If, Kernel, While
from penstock.loop.numbers import Morsels, Progress
from penstock.runtime.kernels import StandingFrame

# Long enough that a query of some ten thousand rows never compiles twice.
COMPILE_DELAY = 0.004
# Per statement, once a kernel has more than ORDINARY: the larger a kernel, the longer its compilation at the FULL level.
ORDINARY = 400
# Larger kernels keep their first code: LLVM's time at the FULL level grows with about the power 1.5 of a kernel's length
# (200 sums 4 s, 1,000 sums a minute), however the kernel is divided into loops.
LARGEST_OPTIMISED = 16_000
TRIAL = 8  # morsels between two readings of the clock

Start = Callable[[Callable[[], None]], None]


def _in_background(work: Callable[[], None]) -> None:
    # Not a daemon: the process would crash if it exited while LLVM compiles.
    threading.Thread(target=work, name="penstock-compile").start()


class TieredKernel:
    """A kernel that is recompiled at the FULL level once it has run long enough; called like a `NativeKernel`."""

    def __init__(
        self,
        kernel: Kernel,
        cache: KernelCache | None = None,
        patience: float = COMPILE_DELAY,
        clock: Callable[[], float] = time.perf_counter,
        start: Start = _in_background,
    ) -> None:
        self.kernel = kernel
        self._cache = cache
        self._patience = patience * max(1, statements(kernel.body) / ORDINARY)
        self._best = best_level(kernel)
        self._clock, self._start = clock, start
        self._arguments = Arguments(kernel)
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> Code:
        """Take the best code that is available, or compile at the QUICK level."""
        made = (
            compile_kernel(self.kernel, effort=OptimisationLevel.QUICK)
            if self._cache is None
            else self._cache.soonest(self.kernel, compile_object)
        )
        self._spent = 0.0
        self._settled = made.effort in (self._best, OptimisationLevel.FULL)
        return self._use(made.code)

    def _use(self, code: Code) -> Code:
        self._held = code if self._cache is None else None
        self._known = ref(code)
        return code

    def _code(self) -> Code:
        """The code now in use; the caller keeps a reference until the call returns."""
        code = self._known()
        return self._begin() if code is None else code

    @property
    def effort(self) -> OptimisationLevel:
        """The optimisation level of the code now in use."""
        return self._code().effort

    def __call__(self, values: Mapping[str, Argument]) -> int:
        code, words = self._code(), self._arguments.filled(values)
        if self._settled:
            return code.call(words)
        started = self._clock()
        result = code.call(words)
        self._spend(self._clock() - started)
        return result

    def frame(self, values: Mapping[str, Argument]) -> ArgumentFrame:
        """Lay out the arguments of the kernel; the layout is the same at both levels."""
        return self._arguments.frame(values)

    def standing(self, values: Mapping[str, Argument]) -> StandingFrame:
        """Lay out the arguments of calls of which each overwrites a few."""
        return self._arguments.standing(values)

    def run(self, start: int) -> int:
        """Call the kernel with the words at an address."""
        code = self._known() or self._begin()
        if self._settled:
            return code.run(start)
        started = self._clock()
        reached = code.run(start)
        self._spend(self._clock() - started)
        return reached

    def pinned(self) -> tuple[int, object, bool]:
        """The address of the code now in use, what keeps it in memory, and whether it will not be replaced."""
        code = self._code()
        return code.address, code, self._settled and code.effort is self._best

    def spend(self, seconds: float) -> None:
        """Count the time that native code took to call the kernel by its address."""
        if not self._settled:
            self._spend(seconds)

    def over(self, frame: ArgumentFrame, shares: Morsels) -> Progress:
        """Process morsels; only `TRIAL` of them until FULL code exists or is being compiled."""
        code = self._code()
        if self._settled:
            return code.through([frame], [shares])[0]
        started = self._clock()
        progress = code.through([frame], [shares], TRIAL)[0]
        self._spend(self._clock() - started)
        return progress

    def together(self, frames: Sequence[ArgumentFrame], shares: Sequence[Morsels]) -> list[Progress] | None:
        """Process morsels on several threads; None until FULL code exists or is being compiled."""
        code = self._code()
        return code.through(frames, shares) if self._settled and HAS_THREADS else None

    def apart(self, frames: Sequence[ArgumentFrame], shares: Sequence[Morsels]) -> list[Progress]:
        """Process the i-th list of morsels by the i-th frame, in parallel."""
        code = self._code()
        if self._settled:
            return code.apart(frames, shares)
        started = self._clock()
        found = code.apart(frames, shares)
        self._spend(self._clock() - started)
        return found

    def _spend(self, seconds: float) -> None:
        # Concurrent additions may be lost; the sum only has to be roughly right.
        self._spent += seconds
        if self._spent > self._patience:
            self._improve()

    def _improve(self) -> None:
        with self._lock:
            if self._settled:
                return
            self._settled = True
        self._start(self.optimise)

    def prepare(self) -> None:
        """Compile at the best level now, unless that is done or under way."""
        self._code()
        with self._lock:
            if self._settled:
                return
            self._settled = True
        self.optimise()

    def optimise(self) -> None:
        """Compile at the FULL level now, and use that code from the next call on."""
        self._settled = True
        self._use(compile_kernel(self.kernel, self._cache, OptimisationLevel.FULL).code)


def best_level(kernel: Kernel) -> OptimisationLevel:
    """Return the level that a kernel's code reaches at most."""
    return OptimisationLevel.QUICK if statements(kernel.body) > LARGEST_OPTIMISED else OptimisationLevel.FULL


def statements(body: Block) -> int:
    """Count the statements of a block, with those of inner blocks."""
    count, waiting = 0, [body]
    while waiting:
        block = waiting.pop()
        count += len(block)
        for statement in block:
            match statement:
                case If(then=then, orelse=orelse):
                    waiting += [then, orelse]
                case For(body=inner) | While(body=inner):
                    waiting.append(inner)
    return count
