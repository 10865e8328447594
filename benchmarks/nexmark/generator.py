"""Generate the events of Nexmark: persons, auctions and bids in the proportion 1 : 3 : 46.

The numbers are those of the original generator (Apache Beam, `NexmarkConfiguration`): ids grow with the
events, half of the bids go to a hot auction and three quarters of sellers and bidders are hot persons,
whose ids change every hundred. Columns no query here reads (addresses, descriptions, `extra`) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.workloads import START_US

Ints = npt.NDArray[np.int64]

PERSONS, AUCTIONS, BIDS = 1, 3, 46
EPOCH = PERSONS + AUCTIONS + BIDS
FIRST_ID = 1_000
FIRST_CATEGORY, CATEGORIES = 10, 5
IN_FLIGHT = 100
ACTIVE_PERSONS = 1_000
LEAD = 10
"""How many ids after the last one may be drawn: events refer to auctions and persons that come a little later."""
HOT_EVERY = 100
HOT_AUCTION, HOT_SELLER, HOT_BIDDER = 2, 4, 4
"""One of so many auctions, sellers and bidders is *not* hot."""
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")

PERSON = {"ts": "timestamp[us]", "id": "int64", "name": "string", "city": "string", "state": "string"}
AUCTION = {
    "ts": "timestamp[us]",
    "id": "int64",
    "seller": "int64",
    "category": "int64",
    "initial_bid": "int64",
    "reserve": "int64",
}
BID = {"ts": "timestamp[us]", "auction": "int64", "bidder": "int64", "price": "int64"}


@dataclass(frozen=True, slots=True)
class Nexmark:
    """Describe a run of events: how many, how many a second, and the seed."""

    events: int = 10_000_000
    rate: int = 10_000
    seed: int = 1


STREAMS = ("person", "auction", "bid")
Events = Mapping[str, pa.Table]
"""The streams by name, each in the order of time."""


def generate(spec: Nexmark, streams: Sequence[str] = STREAMS) -> Events:
    """Build the tables of some streams; those of a stream do not depend on which others are built.

    >>> made = generate(Nexmark(events=5_000))
    >>> {name: table.num_rows for name, table in made.items()}
    {'person': 100, 'auction': 300, 'bid': 4600}
    """
    makers = {"person": (_persons, 0, PERSONS), "auction": (_auctions, PERSONS, AUCTIONS)}
    makers["bid"] = (_bids, PERSONS + AUCTIONS, BIDS)
    made = {}
    for name in streams:
        make, first, width = makers[name]
        epochs = np.arange(-(-spec.events // EPOCH), dtype=np.int64) * EPOCH + first
        numbers = (epochs[:, None] + np.arange(width)).ravel()
        random = np.random.default_rng([spec.seed, first])
        made[name] = make(numbers[numbers < spec.events], spec, random)
    return made


def _times(events: Ints, spec: Nexmark) -> pa.Array:
    return pa.array(START_US + events * 1_000_000 // spec.rate).cast(pa.timestamp("us"))


def _persons(events: Ints, spec: Nexmark, random: np.random.Generator) -> pa.Table:
    first, last = _drawn(FIRST_NAMES, events, random), _drawn(LAST_NAMES, events, random)
    columns = {
        "ts": _times(events, spec),
        "id": pa.array(last_person(events) + FIRST_ID),
        "name": pa.array([f"{a} {b}" for a, b in zip(first.to_pylist(), last.to_pylist(), strict=True)]),
        "city": _drawn(CITIES, events, random),
        "state": _drawn(STATES, events, random),
    }
    return pa.table(columns)


def _drawn(words: tuple[str, ...], events: Ints, random: np.random.Generator) -> pa.Array:
    return pa.array(words).take(pa.array(random.integers(0, len(words), len(events))))


def _auctions(events: Ints, spec: Nexmark, random: np.random.Generator) -> pa.Table:
    initial = _prices(events, random)
    columns = {
        "ts": _times(events, spec),
        "id": pa.array(last_auction(events) + FIRST_ID),
        "seller": pa.array(_people(events, HOT_SELLER, 0, random)),
        "category": pa.array(random.integers(0, CATEGORIES, len(events)) + FIRST_CATEGORY),
        "initial_bid": pa.array(initial),
        "reserve": pa.array(initial + _prices(events, random)),
    }
    return pa.table(columns)


def _bids(events: Ints, spec: Nexmark, random: np.random.Generator) -> pa.Table:
    last = last_auction(events)
    oldest = np.maximum(last - IN_FLIGHT, 0)
    drawn = oldest + random.integers(0, last - oldest + 1 + LEAD)
    hot = random.integers(0, HOT_AUCTION, len(events)) > 0
    columns = {
        "ts": _times(events, spec),
        "auction": pa.array(np.where(hot, last // HOT_EVERY * HOT_EVERY, drawn) + FIRST_ID),
        "bidder": pa.array(_people(events, HOT_BIDDER, 1, random)),
        "price": pa.array(_prices(events, random)),
    }
    return pa.table(columns)


def _people(events: Ints, ratio: int, after: int, random: np.random.Generator) -> Ints:
    """Draw sellers (`after` 0) or bidders (`after` 1), so that hot sellers and hot bidders are not the same."""
    last = last_person(events)
    active = np.minimum(last + 1, ACTIVE_PERSONS)
    drawn = last + 1 - active + random.integers(0, active + LEAD)
    hot = random.integers(0, ratio, len(events)) > 0
    return np.where(hot, last // HOT_EVERY * HOT_EVERY + after, drawn) + FIRST_ID


def _prices(events: Ints, random: np.random.Generator) -> Ints:
    return np.rint(10 ** (6 * random.random(len(events))) * 100).astype(np.int64)


def last_person(events: Ints) -> Ints:
    """Return the number of the last person made up to each event."""
    return events // EPOCH + np.minimum(events % EPOCH, PERSONS - 1)


def last_auction(events: Ints) -> Ints:
    """Return the number of the last auction made up to each event; the first event is a person, before all."""
    since = events % EPOCH - PERSONS
    made = np.where(since < 0, -1, np.minimum(since, AUCTIONS - 1))
    return np.maximum(events // EPOCH * AUCTIONS + made, 0)
