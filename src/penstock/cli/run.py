"""Run or explain a user's query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

import penstock as pk
from penstock.cli.load import load_query
from penstock.cli.output import check_suffix, print_table, write_table


def run_query(
    target: str, flags: Sequence[str], output: Path | None, limit: int, threads: int | None
) -> None:
    """Collect a query and print its first rows, or write all of them to a file."""
    console = Console()
    if output is not None:
        check_suffix(output)  # fail before a long run
    result = collect(load_query(target, flags), threads)
    if output is None:
        print_table(console, result, limit)
    else:
        write_table(result, output)
        console.print(f"{result.num_rows:,} rows written to {output}", highlight=False, markup=False)


def collect(query: Any, threads: int | None) -> pa.Table:
    """Run a query with the requested number of threads."""
    return query.collect() if threads is None else query.collect(engine=pk.Engine(threads=threads))


def explain_query(target: str, flags: Sequence[str], stage: str | None) -> None:
    """Print a query's explanation, or one stage of it, as plain text."""
    query = load_query(target, flags)
    text = query.explain() if stage is None else query.explain(stage=str(stage))
    Console().print(str(text), markup=False, highlight=False, soft_wrap=True)
