"""Pack Penstock and the packages that it needs in executors into one archive.

Virtual environments cannot move between machines, so the archive holds packages only: pip installs wheels for the
executors' Python and platform, in the versions of this environment. Spark unpacks the archive as a folder `penstock`
(`spark.archives=penstock.tar.gz#penstock`), and `bootstrap.py` makes it importable: no interpreter, no PYTHONPATH.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import BinaryIO

import penstock
from penstock.atomic_write import replace_file
from penstock.errors import EngineError

ALIAS = "penstock"  # the folder as which Spark unpacks the archive; bootstrap.py depends on it
NEEDED = ("llvmlite", "numpy", "pandas", "pyarrow", "tzdata")
# Packed if they are installed here: without Polars files are read more slowly, without the others sources do not work.
PACKED_IF_INSTALLED = ("confluent-kafka", "deltalake", "fastavro", "obstore", "polars", "pyiceberg")
_LINUX = "Linux"
_GLIBC_MINORS = range(28, 16, -1)  # wheels for glibc 2.28 or older run wherever pyarrow's do
_UNUSED = ("tests", "include", "__pycache__")
_GZIP_LEVEL = 1  # a higher level takes several times as long for a tenth of the size


@dataclass(frozen=True, slots=True)
class PackTarget:
    """The Python version and the platform of executors."""

    python: str = f"{sys.version_info[0]}.{sys.version_info[1]}"
    machine: str = platform.machine().replace("arm64", "aarch64").replace("AMD64", "x86_64")
    system: str = _LINUX

    def __post_init__(self) -> None:
        if not re.fullmatch(r"3\.\d{1,2}", self.python):
            raise EngineError(f"python is {self.python!r:.40}; it is a version such as '3.12'")
        if self.machine not in ("x86_64", "aarch64") or self.system != _LINUX:
            raise EngineError(
                f"executors on {self.system} {self.machine!r:.40} are not supported: archives are for Linux, x86_64 or aarch64"
            )

    @property
    def platforms(self) -> list[str]:
        """List pip's names of the platform, newest first."""
        return [
            *(f"manylinux_2_{minor}_{self.machine}" for minor in _GLIBC_MINORS),
            f"manylinux2014_{self.machine}",
        ]


def pack_archive(
    path: Path,
    target: PackTarget | None = None,
    *,
    add: Sequence[str] = (),
    only: Sequence[str] | None = None,
) -> Path:
    """Write the archive. `add` names further packages; `only` replaces the optional ones."""
    if not path.name.endswith((".tar.gz", ".tgz")):
        raise EngineError(f"{path.name!r} is no name of an archive; it ends in .tar.gz")
    target, wanted = target or PackTarget(), requirements(add, only)
    with tempfile.TemporaryDirectory(prefix="penstock-pack-") as folder:
        _fill(Path(folder), target, wanted)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, lambda file: _write_archive(file, Path(folder)))
    return path


def requirements(add: Sequence[str] = (), only: Sequence[str] | None = None) -> list[str]:
    """List the packages to install, in the versions of this environment."""
    given = [name for name in PACKED_IF_INSTALLED if _installed(name)] if only is None else list(only)
    wrong = [name for name in (*given, *add) if not re.fullmatch(r"[A-Za-z0-9][\w.-]*(\[[\w,-]+\])?", name)]
    if wrong:
        raise EngineError(
            f"{wrong[0]!r:.60} is no name of a package, such as 'scipy'; versions are those of this environment"
        )
    names = dict.fromkeys([*NEEDED, *given, *add])
    missing = [name for name in names if not _installed(name.partition("[")[0])]
    if missing:
        raise EngineError(
            f"{', '.join(missing)} must be installed here first: executors get the versions of this environment"
        )
    return list(names)


def archive_name(target: PackTarget, add: Sequence[str] = (), only: Sequence[str] | None = None) -> str:
    """Return a name that is different for different contents."""
    found = hashlib.sha256(json.dumps([asdict(target), requirements(add, only), sorted(_pins())]).encode())
    for file in _sources():
        found.update(str(file).encode() + (_package() / file).read_bytes())
    return f"penstock-{penstock.__version__}-python{target.python}-{target.machine}-{found.hexdigest()[:16]}.tar.gz"


# --- contents -----------------------------------------------------------------------------------------------


def _fill(folder: Path, target: PackTarget, wanted: Sequence[str]) -> None:
    """Lay out the archive: bootstrap.py as the root module, and all packages in `site`."""
    site = folder / "site"
    _install(site, target, wanted)
    for name in _UNUSED:
        for found in [path for path in site.glob(f"*/**/{name}") if path.is_dir()]:
            shutil.rmtree(found, ignore_errors=True)
    for file in _sources():
        (site / "penstock" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_package() / file, site / "penstock" / file)
    shutil.copyfile(Path(__file__).with_name("bootstrap.py"), folder / "__init__.py")
    (folder / "pack.json").write_text(json.dumps(asdict(target)), encoding="utf-8")


def _install(site: Path, target: PackTarget, wanted: Sequence[str]) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.writelines(f"{pin}\n" for pin in _pins())
        constraints.flush()
        where = [part for tag in target.platforms for part in ("--platform", tag)]
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-compile",
            "--disable-pip-version-check",
        ]
        command += ["--target", str(site), "--only-binary=:all:", "--implementation", "cp"]
        command += ["--python-version", target.python, *where, "-c", constraints.name, *wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - pip, with checked names
    if done.returncode:
        raise EngineError(
            f"pip cannot install the packages for {target.python} on {target.machine}: {_reason(done.stderr)}"
        )


def _reason(output: str) -> str:
    """Return the last error in the output of pip."""
    lines = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
    if "No module named pip" in output:
        return "pip is not installed here; run python -m ensurepip"
    return lines[-1] if lines else "it gives no reason"


def _pins() -> Iterator[str]:
    """Pin every package of this environment that pip can fetch."""
    for distribution in metadata.distributions():
        name, local = distribution.metadata["Name"], "+" in distribution.version
        if name and name.lower() != "penstock" and not local:
            yield f"{name}=={distribution.version}"


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _package() -> Path:
    return Path(penstock.__file__).resolve().parent


def _sources() -> list[Path]:
    """List the files of Penstock."""
    found = (path.relative_to(_package()) for path in _package().rglob("*") if path.is_file())
    return sorted(path for path in found if "__pycache__" not in path.parts)


def _write_archive(file: BinaryIO, folder: Path) -> None:
    """Write a tar file that depends on the contents alone: no times, no users."""
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=_GZIP_LEVEL, fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        for root, folders, names in os.walk(folder):
            folders.sort()
            for name in sorted(names):
                path = Path(root) / name
                archive.add(path, str(path.relative_to(folder)), recursive=False, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime, member.mode = 0, 0o755 if member.mode & 0o100 else 0o644
    return member
