"""Generate the demo's click stream."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

START_US = 1_700_000_000_000_000
KINDS = pa.array(["click", "view", "purchase"])
PAGES = pa.array(["/", "/search", "/product", "/basket", "/pay", "/help", "/about", "/news"])


def clicks(rows: int, seed: int = 1) -> pa.Table:
    """Build the demo's click stream: a small site, one event every 250 microseconds."""
    random = np.random.default_rng(seed)
    visits = np.minimum(random.geometric(0.35, rows) - 1, len(PAGES) - 1)
    kinds = random.choice(3, rows, p=(0.25, 0.7, 0.05))
    cents = np.where(kinds == 2, random.integers(500, 20_000, rows), 0)
    return pa.table(
        {
            "ts": pa.array(START_US + 250 * np.arange(rows, dtype=np.int64)).cast(pa.timestamp("us")),
            "user": pa.array(random.integers(0, 50_000, rows, dtype=np.int64)),
            "page": PAGES.take(pa.array(visits)),
            "kind": KINDS.take(pa.array(kinds)),
            "cents": pa.array(cents),
        }
    )
