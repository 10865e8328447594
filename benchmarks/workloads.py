"""Generate the benchmark tables: seeded, ordered by time, as fast as NumPy draws numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

EVENT_TYPES = ("click", "view", "purchase")
"""Event types by code: `event_type == 1` and `event_type == "view"` keep the same rows."""
VIEW = 1
START_US = 1_700_000_000_000_000
STEP_US = 3
MAX_VALUE = 1_000
ZIPF_EXPONENT = 1.0


class Skew(StrEnum):
    """How rows are spread over keys."""

    UNIFORM = "uniform"
    ZIPF = "zipf"
    HOT = "hot"


class EventType(StrEnum):
    """How the event type is stored."""

    INT = "int"
    STRING = "string"
    DICTIONARY = "dictionary"


@dataclass(frozen=True, slots=True)
class YsbKeyed:
    """Describe a ysb-keyed table: events of the Yahoo streaming benchmark, counted by campaign."""

    rows: int = 20_000_000
    keys: int = 10_000
    skew: Skew = Skew.UNIFORM
    event_type: EventType = EventType.INT
    seed: int = 1


def ysb_keyed(spec: YsbKeyed) -> pa.Table:
    """Build `ts, user_id, page_id, campaign_id, event_type, value`, three microseconds apart."""
    random = np.random.default_rng(spec.seed)
    codes = random.integers(0, len(EVENT_TYPES), spec.rows, dtype=np.int32)
    columns = {
        "ts": pa.array(START_US + STEP_US * np.arange(spec.rows, dtype=np.int64)).cast(pa.timestamp("us")),
        "user_id": pa.array(random.integers(0, 100_000, spec.rows, dtype=np.int64)),
        "page_id": pa.array(random.integers(0, 1_000, spec.rows, dtype=np.int64)),
        "campaign_id": pa.array(draw_keys(random, spec)),
        "event_type": encode_event_type(codes, spec.event_type),
        "value": pa.array(random.integers(0, MAX_VALUE, spec.rows, dtype=np.int64)),
    }
    return pa.table(columns)


def draw_keys(random: np.random.Generator, spec: YsbKeyed) -> Ints:
    """Draw each row's key in [0, keys)."""
    match spec.skew:
        case Skew.UNIFORM:
            return random.integers(0, spec.keys, spec.rows, dtype=np.int64)
        case Skew.ZIPF:
            return zipf(random, spec.rows, spec.keys)
        case Skew.HOT:
            return hot_key(random, spec.rows, spec.keys)


def zipf(random: np.random.Generator, rows: int, keys: int) -> Ints:
    """Draw keys with probability proportional to 1 / rank, ranks shuffled over the key range."""
    weights = 1.0 / np.arange(1, keys + 1) ** ZIPF_EXPONENT
    cumulative = np.cumsum(weights / weights.sum())
    ranks = np.searchsorted(cumulative, random.random(rows), side="right")
    # The last cumulative weight may round below 1, which would give the rank `keys`.
    return random.permutation(keys).astype(np.int64)[np.minimum(ranks, keys - 1)]


def hot_key(random: np.random.Generator, rows: int, keys: int) -> Ints:
    """Give every row the same key, in the middle of the declared range."""
    del random
    return np.full(rows, keys // 2, dtype=np.int64)


def encode_event_type(codes: npt.NDArray[np.int32], kind: EventType) -> pa.Array:
    """Store event codes as integers, plain strings or dictionary strings."""
    match kind:
        case EventType.INT:
            return pa.array(codes)
        case EventType.DICTIONARY:
            return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(EVENT_TYPES))
        case EventType.STRING:
            return pa.array(EVENT_TYPES).take(pa.array(codes))
