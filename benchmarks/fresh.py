"""Run a fresh interpreter: some figures can only be taken once in a process."""

from __future__ import annotations

import os
import subprocess
import sys

NO_DISK_CACHE = {"PENSTOCK_CACHE_DIR": ""}


def fresh(arguments: list[str]) -> str | None:
    """Run a fresh interpreter that finds the same packages; None if it fails."""
    path = os.pathsep.join(part for part in sys.path if part)
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | NO_DISK_CACHE | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout if done.returncode == 0 else None
