"""Run the tests on Spark with each supported version of Spark: `make spark-matrix`.

A version gets a virtual environment that holds its pyspark alone and sees every other package of this one.
"""

from __future__ import annotations

import argparse
import os
import site
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("4.0.5", "4.1.4", "4.2.1")  # the newest of each minor version; `make spark` runs the locked one
# PySpark before 4.2 leaves sockets of collected results to the garbage collector.
NOISE = ("-W", "ignore::pytest.PytestUnraisableExceptionWarning", "-W", "ignore::ResourceWarning")


def environment(version: str) -> Path:
    """Make the environment of a version, unless it is there, and return its Python."""
    folder = ROOT / ".cache" / "spark" / version
    python = folder / "bin" / "python"
    done = folder / "done"
    if not done.exists():
        venv.create(folder, with_pip=False, symlinks=True, clear=True)
        packages = next(folder.glob("lib/python*/site-packages"))
        shared = "; ".join(f"site.addsitedir({path!r})" for path in site.getsitepackages())
        (packages / "shared.pth").write_text(f"import site; {shared}\n", encoding="utf-8")
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages]
        subprocess.run([*install, f"pyspark=={version}"], check=True)
        done.touch()
    return python


def main() -> int:
    """Run every version, and return 1 if one of them failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--versions", default=",".join(VERSIONS))
    parser.add_argument("--slice", action="store_true", help="what CI runs of each test, not all")
    parser.add_argument("paths", nargs="*", default=["tests/spark"])
    given = parser.parse_args()
    failed = []
    for version in given.versions.split(","):
        sys.stdout.write(f"Spark {version}\n")
        sys.stdout.flush()
        more = [] if given.slice else ["--campaign"]
        command = [environment(version), "-m", "pytest", "-q", "-p", "no:cacheprovider", *NOISE, *more]
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if subprocess.run([*command, *given.paths], cwd=ROOT, env=clean, check=False).returncode:
            failed.append(version)
    sys.stdout.write(f"failed: {', '.join(failed)}\n" if failed else "every version passed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
