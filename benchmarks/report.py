"""Print cases as tables for people, and save them as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.contenders import CPP_GROUP, PENSTOCK_GROUP
from benchmarks.figures import Case, Figure, fastest, of_group, ratio, rivals
from benchmarks.measure import NOT_AVAILABLE, Outcome

FORMAT = 1


def print_case(console: Console, case: Case) -> None:
    """Print one case: everyone's speed, why some have none, then the figures."""
    console.print(speed_table(case))
    for outcome in case.outcomes:
        if outcome.error:
            console.print(f"[red]{outcome.name} {excuse(outcome.error)}[/]", highlight=False)
    console.print(figure_table(case.figures))


def excuse(error: str) -> str:
    """Say that a contender failed and why, or that it does not answer this question yet."""
    return escape(error if error.startswith(NOT_AVAILABLE) else f"failed: {error}")


def speed_table(case: Case) -> Table:
    """One row per contender."""
    table = Table(title=f"\n{case.name}: {case.rows:,} rows, {case.keys:,} keys", title_justify="left")
    table.add_column("contender", no_wrap=True)
    for heading in ("threads", "ms", "cpu ms", "M rows/s", "x C++", "x peer"):
        table.add_column(heading, justify="right")
    table.add_column("answer", no_wrap=True)
    for outcome in case.outcomes:
        table.add_row(*speed_cells(case, outcome), style="bold" if outcome.group == PENSTOCK_GROUP else None)
    return table


def speed_cells(case: Case, outcome: Outcome) -> tuple[str, ...]:
    """The cells of one contender; ratios are on the same question, to C++ at the same thread count."""
    best = outcome.best
    if best is None:
        fate = NOT_AVAILABLE if (outcome.error or "").startswith(NOT_AVAILABLE) else "failed"
        return (outcome.name, str(outcome.threads), "-", "-", "-", "-", "-", f"[red]{fate}[/]")
    same = [other for other in case.outcomes if other.question == outcome.question]
    return (
        outcome.name,
        str(outcome.threads),
        milliseconds(best),
        milliseconds(outcome.best_cpu or 0.0),
        f"{(outcome.rows or case.rows) / best / 1e6:,.1f}",
        times(ratio(fastest(of_group(same, CPP_GROUP, outcome.threads)), best)),
        times(ratio(fastest(rivals(same)), best)),
        "[green]agrees[/]" if outcome.agrees else "[red]DIFFERS[/]",
    )


def milliseconds(seconds: float) -> str:
    """Show a time in few characters: fractions only where they matter."""
    return f"{seconds * 1e3:.{0 if seconds >= 1 else 1}f}"


def times(value: float | None) -> str:
    """Show a ratio."""
    return "-" if value is None else f"{value:.2f}"


def figure_table(figures: Sequence[Figure]) -> Table:
    """One row per figure, with its target."""
    table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
    table.add_column("figure")
    for heading in ("measured", "target"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for figure in figures:
        table.add_row(figure.name, quantity(figure), target(figure), mark(figure.met))
    return table


def quantity(figure: Figure) -> str:
    """Show a figure's value with its unit."""
    return "-" if figure.value is None else f"{figure.value:.2f} {figure.unit}"


def target(figure: Figure) -> str:
    """Show a figure's target."""
    if figure.target is None:
        return ""
    return f"{'>=' if figure.at_least else '<='} {figure.target:g} {figure.unit}"


def mark(met: bool | None) -> str:
    """Show whether a target is met."""
    return {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[met]


def to_json(
    suite: str, when: str, machine: Mapping[str, object], cases: Sequence[Case], figures: Sequence[Figure]
) -> dict[str, Any]:
    """Give a run as plain data."""
    return {
        "format": FORMAT,
        "suite": suite,
        "when": when,
        "machine": dict(machine),
        "cases": [case_json(case) for case in cases],
        "figures": [figure_json(figure) for figure in figures],
    }


def case_json(case: Case) -> dict[str, Any]:
    """Give a case as plain data."""
    return {
        "name": case.name,
        "rows": case.rows,
        "keys": case.keys,
        "sweep": case.sweep,
        "point": case.point,
        "outcomes": [outcome_json(case, outcome) for outcome in case.outcomes],
        "figures": [figure_json(figure) for figure in case.figures],
    }


def outcome_json(case: Case, outcome: Outcome) -> dict[str, Any]:
    """Give an outcome as plain data, with its speed."""
    best = outcome.best
    return asdict(outcome) | {
        "best": best,
        "best_cpu": outcome.best_cpu,
        "rows_per_second": None if best is None else (outcome.rows or case.rows) / best,
    }


def figure_json(figure: Figure) -> dict[str, Any]:
    """Give a figure as plain data, with its verdict."""
    return asdict(figure) | {"met": figure.met}


def save_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a run's document."""
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
