"""What decisions may depend on beside rows: threads and cache sizes. A plain value, so that decisions are repeatable."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class Machine:
    """`private_cache` belongs to one core, `shared_cache` to all of a socket; both in bytes."""

    threads: int = 1
    private_cache: int = 1 << 20
    shared_cache: int = 32 << 20


def this_machine(threads: int, caches: Path = _CACHES) -> Machine:
    """Describe the machine as the system reports it, else with usual cache sizes."""
    sizes = _cache_sizes(caches)
    usual = Machine(threads)
    return Machine(threads, sizes.get(2, usual.private_cache), sizes.get(3, usual.shared_cache))


@cache
def _cache_sizes(folder: Path) -> dict[int, int]:
    """Read the size of each cache level; empty where the system has no such files."""
    found: dict[int, int] = {}
    for entry in sorted(folder.glob("index*")):
        try:
            level, size = int((entry / "level").read_text()), (entry / "size").read_text().strip()
            found[level] = int(size[:-1]) * _UNITS[size[-1]]
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return found
