"""Load Penstock from the archive in which this file lies.

`penstock pack` writes this file as the root of its archive, which Spark unpacks as a folder `penstock` in a folder of
`sys.path`. So `import penstock` in a Python worker runs it, before the worker needs pyarrow or any other package of the
archive. It prepends the packages of the archive to `sys.path`, and replaces itself by the real Penstock.
Only the standard library exists here.
"""

import importlib
import json
import platform
import sys
from pathlib import Path


def load() -> None:
    """Prepend the packages of the archive to the path, and import Penstock from there."""
    here = Path(__file__).resolve().parent
    packed = json.loads((here / "pack.json").read_text(encoding="utf-8"))
    wanted = f"Python {packed['python']} on {packed['system']} {packed['machine']}"
    found = f"Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.system()} {platform.machine()}"
    if wanted != found:
        raise ImportError(f"this archive of Penstock is for {wanted}, and this is {found}; pack another")
    sys.path.insert(0, str(here / "site"))
    importlib.invalidate_caches()
    del sys.modules["penstock"]
    importlib.import_module("penstock")


if __name__ == "penstock":  # not where this file is a module of Penstock
    load()
