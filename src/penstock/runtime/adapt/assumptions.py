"""The choices of a run that `Engine(assume=…)` pins: by name, as `metrics.adaptations` names them."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import EngineError
from penstock.types.choices import one_of

CHOICES: dict[str, tuple[str, ...]] = {
    "key table": ("dense", "hash"),
    "key table shared": ("private", "partitioned", "shared"),
    "sums": ("64 bits", "128 bits"),
    "null flags": ("none", "all"),
    "addition": ("row by row", "run by run"),
    "held": ("states per key", "rows"),
}
ORDER = "filter order"


def check_assumptions(assume: object) -> None:
    """Raise unless each name is that of a choice, and each value one that it has.

    >>> check_assumptions({"key table": "hash", "filter order": [[1], [0, 2]]})
    """
    if not isinstance(assume, Mapping):
        raise EngineError(f"assume must be a mapping such as {{'key table': 'hash'}}, not {assume!r:.60}")
    for name, value in assume.items():
        if name == ORDER:
            order_of(value)
        elif not isinstance(name, str) or name not in CHOICES:
            known = ", ".join(map(repr, (*CHOICES, ORDER)))
            raise EngineError(f"assume has no choice {name!r:.60}; the choices are {known}")
        elif not one_of(value, CHOICES[name]):
            allowed = " or ".join(map(repr, CHOICES[name]))
            raise EngineError(f"assume: {name} must be {allowed}, not {value!r:.60}")


def order_of(value: object) -> tuple[tuple[int, ...], ...]:
    """Return groups of conjuncts by number, each number once.

    >>> order_of([[2], [0, 1]])
    ((2,), (0, 1))
    """
    groups = value if isinstance(value, (list, tuple)) else ()
    found = tuple(tuple(group) if isinstance(group, (list, tuple)) else () for group in groups)
    numbers = [number for group in found for number in group]
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    if not all(found) or not whole or sorted(numbers) != list(range(len(numbers))) or not numbers:
        raise EngineError(
            f"assume: {ORDER} must list groups of conjuncts by number, such as [[1], [0, 2]], each once, not {value!r:.60}"
        )
    return found
