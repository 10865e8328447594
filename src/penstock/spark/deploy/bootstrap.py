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

_HERE = Path(__file__).resolve().parent
_PACKED = json.loads((_HERE / "pack.json").read_text(encoding="utf-8"))
_WANTED = f"Python {_PACKED['python']} on {_PACKED['system']} {_PACKED['machine']}"
_FOUND = f"Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.system()} {platform.machine()}"

if _WANTED != _FOUND:
    raise ImportError(f"this archive of Penstock is for {_WANTED}, and this is {_FOUND}; pack another")

sys.path.insert(0, str(_HERE / "site"))
importlib.invalidate_caches()
del sys.modules["penstock"]
importlib.import_module("penstock")
