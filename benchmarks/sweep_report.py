"""Print a series of cases as one table: a line for each point, a column for each contender."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.figures import Case, Figure, speed
from benchmarks.measure import NOT_AVAILABLE, Outcome
from benchmarks.report import mark, print_case, quantity, target


def print_cases(console: Console, cases: Iterable[Case]) -> None:
    """Print each sweep as one table, and every other case on its own."""
    for sweep, several in groupby(cases, key=lambda case: case.sweep):
        if sweep:
            print_sweep(console, sweep, list(several))
        else:
            for case in several:
                print_case(console, case)


def print_sweep(console: Console, sweep: str, cases: Sequence[Case]) -> None:
    """Print a sweep, then each reason for a missing figure once."""
    console.print(sweep_table(sweep, cases))
    for name, error in dict.fromkeys((column_of(o), o.error) for case in cases for o in case.outcomes):
        if error:
            console.print(f"[red]{name}:[/] {escape(error)}", highlight=False)
    for case in cases:
        for outcome in case.outcomes:
            if outcome.agrees is False:
                console.print(f"[red]{case.name}: the answer of {outcome.name} differs[/]", highlight=False)


def sweep_table(sweep: str, cases: Sequence[Case]) -> Table:
    """Speeds in M rows/s, then the figures of each point."""
    columns = list(dict.fromkeys(column_of(o) for case in cases for o in case.outcomes))
    headings = list(dict.fromkeys(figure.name for case in cases for figure in case.figures))
    rows = {case.rows for case in cases}
    size = f"{rows.pop():,} rows, " if len(rows) == 1 else ""
    table = Table(title=f"\n{sweep}: {size}M rows/s", title_justify="left")
    table.add_column("", no_wrap=True)
    for column in (*columns, *headings):
        table.add_column(column, justify="right")
    table.add_column("answers", no_wrap=True)
    for case in cases:
        speeds = (speed_cell(case, column) for column in columns)
        figures = (figure_cell(case.figures, heading) for heading in headings)
        table.add_row(case.name, *speeds, *figures, verdict(case.outcomes))
    return table


def column_of(outcome: Outcome) -> str:
    """A contender's column: what stands after a comma is a variant."""
    return outcome.name.split(",")[0]


def speed_cell(case: Case, column: str) -> str:
    """The best speed in a column, of those who were asked what the first in it was asked."""
    found = [outcome for outcome in case.outcomes if column_of(outcome) == column]
    same = [speed(case, outcome) for outcome in found if outcome.question == found[0].question]
    fast = max((value for value in same if value), default=None)
    return missing(found) if fast is None else f"{fast / 1e6:,.1f}"


def missing(found: Sequence[Outcome]) -> str:
    """Say in a word why there is no speed."""
    errors = [outcome.error for outcome in found if outcome.error]
    if not errors:
        return "[red]differs[/]" if found else ""
    return "n/a" if errors[0].startswith(NOT_AVAILABLE) else "[red]failed[/]"


def figure_cell(figures: Sequence[Figure], name: str) -> str:
    """A figure with its target and verdict."""
    found = next((figure for figure in figures if figure.name == name), None)
    if found is None or found.value is None:
        return "-"
    return " ".join(part for part in (quantity(found), target(found), mark(found.met)) if part)


def verdict(outcomes: Sequence[Outcome]) -> str:
    """Say whether all who answered agree."""
    differ = any(outcome.agrees is False for outcome in outcomes)
    return "[red]DIFFER[/]" if differ else "[green]agree[/]"


def summary(cases: Sequence[Case]) -> list[Figure]:
    """Every figure that has a target; of a sweep's points with the same target, the worst."""
    worst: dict[tuple[str, float | None], Figure] = {}
    for case in cases:
        for figure in case.figures:
            if figure.target is None:
                continue
            name = f"{case.sweep}: {figure.name}" if case.sweep else figure.name
            shown = replace(figure, name=f"{name}, worst at {case.name}" if case.sweep else name)
            best = worst.setdefault((name, figure.target), shown)
            worst[name, figure.target] = min(best, shown, key=margin)
    return list(worst.values())


def margin(figure: Figure) -> float:
    """How far a figure is beyond its target; a missing one is no worse than any other."""
    if figure.value is None or figure.target is None:
        return math.inf
    return figure.value / figure.target if figure.at_least else figure.target / figure.value
