"""Damage footers of Parquet alone, a hundred times as many as files: python -m tests.security.damage.footers FOLDER

Whatever passes the check is asked everything that Penstock asks; the process must live on.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.sources import parquet_footers
from penstock.sources.paths import FoundFile
from tests.security.damage.mutations import damaged


def footer_of(path: Path) -> bytes:
    whole = path.read_bytes()
    return whole[-8 - int.from_bytes(whole[-8:-4], "little") : -8]


def ask(path: str, metadata: Any) -> None:
    """Ask about every column of every row group, in the ways of planning, leaving out and reading in steps."""
    stored = metadata.schema.to_arrow_schema()
    parquet_footers.legacy_times(metadata)
    for field in stored:
        parquet_footers.row_groups(FoundFile(path), metadata, field, stored)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        _ = group.num_rows, group.total_byte_size, group.sorting_columns
        for place in range(group.num_columns):
            _chunk(group.column(place))


def _chunk(chunk: Any) -> None:
    _ = chunk.physical_type, chunk.compression, chunk.data_page_offset, chunk.total_compressed_size
    _ = chunk.has_dictionary_page, chunk.dictionary_page_offset, chunk.num_values
    reported = chunk.statistics
    if reported is not None:
        _ = reported.has_null_count, reported.null_count
        _ = reported.has_min_max and (reported.min_raw, reported.max_raw)


def outcome(path: Path, footer: bytes) -> str:
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    try:
        ask(str(path), parquet_footers.footer(str(path)))
    except (PenstockError, OSError, pa.ArrowException, UnicodeError):
        return "refused"  # `reading` names the file
    return "answer"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="good files")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    faulthandler.enable()
    good = [footer_of(path) for path in sorted(given.folder.glob("*.parquet"))]
    counts: Counter[str] = Counter()
    for number in range(given.first, given.first + given.files):
        dice = random.Random(f"{given.seed}/{number}")
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        counts[outcome(given.folder / "damaged", damaged(dice.choice(good), dice))] += 1
    sys.stdout.write(json.dumps(counts) + "\n")


if __name__ == "__main__":
    main()
