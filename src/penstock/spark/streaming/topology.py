"""Choose whether a stream's rows or partial aggregates of panes cross the shuffle."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.analysis.partition_keys import key_places
from penstock.compile import Compiled
from penstock.explain import saved_cell
from penstock.physical.choose_strategy import Possible, pane_obstacle, possible, sent
from penstock.plan.codec import encode
from penstock.plan.schema import sources_of
from penstock.spark.streaming.pane_row_counts import with_counts


@dataclass(frozen=True, slots=True)
class Way:
    """The form in which rows reach their shards: folded into panes of `windows`, or unchanged if there are none."""

    windows: tuple[str, ...]
    keys: tuple[int, ...]
    obstacle: str | None = None

    @property
    def folds(self) -> bool:
        return bool(self.windows)

    def __str__(self) -> str:
        return sent(self.obstacle)


def windows_of(found: Possible) -> tuple[str, ...]:
    """Return the first windows over the rows, if all of them are made of panes."""
    return () if isinstance(found.fragments, str) else found.fragments


def way_of(compiled: Compiled) -> Way:
    """Choose rows or panes for the shuffle."""
    found = possible(compiled.program)
    obstacle = _obstacle(compiled, found)
    if obstacle is not None:
        return Way((), (), obstacle)
    windows = windows_of(found)
    return Way(windows, key_places(compiled.program, windows[0]) if len(windows) == 1 else ())


def explained(compiled: Compiled) -> str:
    """Describe how a query runs over unbounded streams, and its state."""
    found = possible(compiled.program)
    keys = "one shard" if isinstance(found.keys, str) else "shards of keys"
    saved = [f"state of ~{name}: {bound_of(compiled, name)}" for name in windows_of(found)]
    return "\n".join([f"streaming, in {keys}: {way_of(compiled)}", *saved])


def bound_of(compiled: Compiled, window: str) -> str:
    """Describe the size of a window's saved state."""
    size = cell_bytes(compiled, window)
    return f"panes of open windows x keys x {size} bytes, and texts as long as they are"


def cell_bytes(compiled: Compiled, window: str) -> int:
    """Return the bytes saved per pane and key of a window, including its row count."""
    return saved_cell(with_counts(compiled, [window]).physical("unbounded"), window)


def _obstacle(compiled: Compiled, found: Possible) -> str | None:
    obstacle = pane_obstacle(found)
    if obstacle is not None:
        return obstacle
    if any(source.edges.late_to is not None for source in sources_of(compiled.plan)):
        return "late_to= needs the late rows themselves"
    if any(source.time.implied for source in sources_of(compiled.plan)):
        return "time is implied by the number of a row"
    if encode(compiled.plan)[1]:
        return "a Python function is applied, which does not travel to where files are read"
    return None
