"""Report errors as one red line and an exit code."""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from penstock.errors import PenstockError

FAILED = 1
MISUSED = 2


class CommandError(PenstockError, ValueError):
    """The command line is wrong: no such file, no such query, or an invalid flag."""


class GuardedGroup(TyperGroup):
    """A command group that reports `PenstockError` as a message: exit code 2 for misuse, else 1."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. With --debug, errors propagate with their traceback."""
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            if ctx.find_root().params.get("debug"):
                raise
            report(error)
            raise typer.Exit(MISUSED if isinstance(error, CommandError) else FAILED) from error


def report(error: PenstockError) -> None:
    """Print one error without markup, since its text may contain brackets."""
    Console(stderr=True).print(Text.assemble(("error: ", "bold red"), (str(error), "red")), soft_wrap=True)
