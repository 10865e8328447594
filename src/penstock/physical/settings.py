"""What the choices of a physical plan may depend on beside the program: plain values, no runtime."""

from __future__ import annotations

from dataclasses import dataclass

POSITIONAL_SIGNALS = "dense_signals"  # the name by which the positional evaluation is switched off
SURVIVORS = "filter_before_arrow"  # Arrow computes only rows that pass a kernel's filter


@dataclass(frozen=True, slots=True)
class Settings:
    """`aggregator` forces a sliding algorithm where an aggregate allows it; `off` names fast paths to leave out."""

    aggregator: str | None = None
    off: frozenset[str] = frozenset()
