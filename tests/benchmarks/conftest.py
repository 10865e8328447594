"""The command line, as in tests/unit/cli."""

from tests.unit.cli.conftest import penstock

__all__ = ["penstock"]
