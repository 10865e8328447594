"""What loads when the first query runs: declaring one must load neither the compiler nor the runtime."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from penstock.runtime.metrics import Metrics


@cache
def collector() -> Callable[..., tuple[pa.Table, Metrics]]:
    """What runs a query over all its data. To import it in each run would take longer than to ask here."""
    from penstock.api.execute import collect  # noqa: PLC0415

    return collect
