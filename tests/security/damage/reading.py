"""Scan damaged files, many in one process, and say of each what came of it: python -m tests.security.damage.reading

Each file is announced before it is read, so that whoever started the process knows which one ended it.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import resource
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as pk
from penstock.sources import prefetch
from penstock.spark.planning import planned
from tests.security.damage.mutations import damaged
from tests.security.damage.originals import Original

MOST_MEMORY = 1 << 29  # bytes that a file of some kilobytes may take beyond what was held before
ADDRESSES = 12 << 30  # beyond this the machine itself would suffer
PATIENCE = 60  # seconds until a file is taken for one that never ends
ANSWER, REFUSED = "answer", "refused"
# What is wrong with a query over the columns that a file says it has.
ABOUT_THE_QUERY = (pk.UnknownColumnError, pk.ExpressionTypeError, pk.OverflowError, pk.DurationError)


def queries(original: Original) -> None:
    """Read a file in the ways that take different paths through the readers."""
    stream = pk.scan(original.path, time="t", **original.options)
    counts = stream.window(_size(stream), by=original.by).agg(n=pk.count(), s=pk.sum("v"))
    planned(counts.compiled(), counts.data, None, 2)
    counts.collect().validate(full=True)
    stream.filter(pk.col("v") > 20).head(5).validate(full=True)
    stream.collect().validate(full=True)


def _size(stream: Any) -> Any:
    return pk.tumbling("10s" if pa.types.is_timestamp(stream.schema.field("t").type) else 10)


def outcome(original: Original) -> tuple[str, str]:
    """Say whether a file was read or refused, or what else came of it."""
    before = _peak()
    try:
        queries(original)
        found = ANSWER, ""
    except pk.PenstockError as error:
        found = _refusal(original, error)
    except BaseException as error:  # noqa: BLE001 - whatever is no error of ours is what is looked for
        return "foreign", f"{type(error).__name__}: {error}\n{_where(error)}"
    grown = _peak() - before
    return found if grown < MOST_MEMORY else ("memory", f"{grown >> 20} MB")


def _refusal(original: Original, error: pk.PenstockError) -> tuple[str, str]:
    said = f"{type(error).__name__}: {error}"
    # Metadata that is damaged may name files that are not there, and the error then names those.
    names = (original.path, *original.victims, "the file '/", 'the file "/')
    named = isinstance(error, ABOUT_THE_QUERY) or any(name in said for name in names)
    return (REFUSED if named else "unnamed"), said if named else f"{said}\n{_where(error)}"


def _where(error: BaseException) -> str:
    return "".join(traceback.format_tb(error.__traceback__)[-4:])


def _peak() -> int:
    """Give the most memory that was held since this was last asked."""
    text = Path("/proc/self/status").read_text()
    peak = next(line.split()[1] for line in text.splitlines() if line.startswith("VmHWM"))
    Path("/proc/self/clear_refs").write_text("5")
    return int(peak) << 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("originals", help="JSON of what is damaged")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--decoder", default="arrow")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=10_000)
    given = parser.parse_args()
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if given.decoder == "polars":
        prefetch.decoder_for = lambda rows, worth=0: "polars"  # type: ignore[assignment]
    files = [Original(**load) for load in json.loads(Path(given.originals).read_text())]
    for file in files:
        assert outcome(file) == (ANSWER, ""), f"{file.path} is not damaged: {outcome(file)}"
    for number in range(given.first, given.last):
        _one(files, Path(given.originals), number, given.seed)


def _one(files: list[Original], listing: Path, number: int, seed: int) -> None:
    dice = random.Random(f"{seed}/{number}")
    original = dice.choice(files)
    victim = Path(dice.choice(original.victims))
    whole = victim.read_bytes()
    _say("begin", number, str(victim))
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    try:
        victim.write_bytes(damaged(whole, dice))
        kind, what = outcome(original)
        _say(kind, number, what)
        if kind not in (ANSWER, REFUSED):
            kept(listing, victim, number)
    finally:
        faulthandler.cancel_dump_traceback_later()
        victim.write_bytes(whole)


def kept(listing: Path, victim: Path, number: int) -> None:
    """Keep a damaged file beside the list of good ones."""
    folder = listing.with_suffix(".findings")
    folder.mkdir(exist_ok=True)
    shutil.copyfile(victim, folder / f"{number}-{victim.name}")


def _say(*parts: object) -> None:
    sys.stdout.write(json.dumps(parts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
