"""Write requirements.lock: one version of everything, with hashes, for every Python from 3.11 on.

uv is fetched into a throw-away folder because nothing else here needs it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

EXTRAS = ("bench", "cloud", "connect", "delta", "dev", "iceberg", "kafka", "pandas", "polars", "spark")
ROOT = Path(__file__).resolve().parent.parent


def compile_lock(uv: Path, output: str, extras: tuple[str, ...], *more: str) -> None:
    """Resolve `extras` into `output`, keeping the pins it already holds unless told to upgrade."""
    command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
    command += ["--fork-strategy", "fewest", "--generate-hashes", "--custom-compile-command", "make lock"]
    command += [part for extra in extras for part in ("--extra", extra)]
    command += ["--output-file", output, *more, "pyproject.toml"]
    subprocess.run(command, cwd=ROOT, check=True)


def main(options: list[str]) -> None:
    """Fetch uv, then write the lock of the work bench: everything that `make demo` and `make test` run."""
    with tempfile.TemporaryDirectory() as folder:
        fetch = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, "uv"]
        subprocess.run(fetch, check=True)
        uv = Path(folder) / "bin" / "uv"
        compile_lock(uv, "requirements.lock", EXTRAS, *options)


if __name__ == "__main__":
    main(sys.argv[1:])
