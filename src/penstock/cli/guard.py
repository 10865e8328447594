"""Turn errors into one clear red line and an exit code."""

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
    """The command line itself is wrong: no such file, no such query, a flag that cannot be read."""


class GuardedGroup(TyperGroup):
    """A command group that reports `PenstockError` as a message: exit code 2 for misuse, else 1."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; with --debug let errors through with their traceback."""
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            if ctx.params.get("debug"):
                raise
            report(error)
            raise typer.Exit(MISUSED if isinstance(error, CommandError) else FAILED) from error


def report(error: PenstockError) -> None:
    """Print one error; its text may hold brackets, which must not be read as markup."""
    Console(stderr=True).print(Text.assemble(("error: ", "bold red"), (str(error), "red")), soft_wrap=True)
