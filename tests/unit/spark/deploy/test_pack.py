"""The archive for executors: what is in it, and what is refused before anything is fetched."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import penstock as pk
from penstock.spark.deploy import pack
from penstock.spark.deploy.pack import PackTarget, archive_name, pack_archive, requirements

HERE = PackTarget()


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive without packages, as if pip had found them."""

    def installed(site: Path, target: PackTarget, wanted: Sequence[str]) -> None:
        (site / "numpy" / "tests").mkdir(parents=True)
        (site / "numpy" / "tests" / "large.py").touch()
        (site / "numpy" / "__init__.py").touch()

    monkeypatch.setattr(pack, "_install", installed)
    return pack_archive(tmp_path / "a" / "penstock.tar.gz")


def names_in(archive: Path) -> set[str]:
    with tarfile.open(archive) as file:
        return set(file.getnames())


def test_penstock_is_packed_whole_and_tests_of_packages_are_not(packed: Path) -> None:
    names = names_in(packed)
    assert {"__init__.py", "pack.json", "site/penstock/spark/tasks.py", "site/numpy/__init__.py"} <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith("site/numpy/tests")]


def test_an_archive_depends_on_its_contents_alone(packed: Path) -> None:
    before = packed.read_bytes()
    assert pack_archive(packed).read_bytes() == before
    assert packed.stat().st_mode & 0o077 == 0, "executors run what is in it: no other user may write it"


def imported(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code where the archive is unpacked as Spark does it, in a Python without packages."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(1, {str(folder)!r}); {code}"],
        capture_output=True,
        text=True,
        check=False,
    )


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as file:
        file.extractall(folder / "penstock", filter="data")
    return folder


def test_unpacked_as_penstock_it_is_penstock_with_its_packages_first(packed: Path, tmp_path: Path) -> None:
    folder = unpacked(packed, tmp_path)
    done = imported(
        folder,
        "from penstock.errors import PlanError; import penstock; print(penstock.__file__, sys.path[0])",
    )
    assert done.stdout.split() == [
        f"{folder}/penstock/site/penstock/__init__.py",
        f"{folder}/penstock/site",
    ], done.stderr


@pytest.mark.parametrize("changed", [{"python": "3.99"}, {"machine": "riscv64"}, {"system": "Plan9"}])
def test_an_archive_for_another_python_or_platform_says_so(
    packed: Path, tmp_path: Path, changed: dict[str, str]
) -> None:
    folder = unpacked(packed, tmp_path)
    manifest = folder / "penstock" / "pack.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changed}))
    last = imported(folder, "import penstock").stderr.splitlines()[-1]
    assert last.startswith("ImportError: this archive of Penstock is for Python ")
    assert f"this is Python {sys.version_info[0]}.{sys.version_info[1]} on Linux {platform.machine()}" in last


def test_pip_is_asked_for_wheels_of_the_target_in_the_versions_of_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append((command, Path(command[command.index("-c") + 1]).read_text()))
        return subprocess.CompletedProcess(command, 1, "", "ERROR: one\nERROR: no numpy for 3.12\n")

    monkeypatch.setattr(pack.subprocess, "run", run)
    with pytest.raises(pk.EngineError, match=r"for 3\.12 on aarch64: no numpy for 3\.12$"):
        pack_archive(tmp_path / "x.tar.gz", PackTarget("3.12", "aarch64"), only=())
    ((command, constraints),) = asked
    assert command[-5:] == list(pack.NEEDED)
    assert {"--only-binary=:all:", "manylinux2014_aarch64", "3.12"} <= set(command)
    assert f"pyarrow=={pack.metadata.version('pyarrow')}" in constraints
    assert "penstock" not in constraints
    assert not (tmp_path / "x.tar.gz").exists()


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda: PackTarget(python="three"), "such as '3.12'"),
        (lambda: PackTarget(machine="sparc"), "archives are for Linux"),
        (lambda: PackTarget(system="Windows"), "archives are for Linux"),
        (lambda: pack_archive(Path("x.zip")), "ends in .tar.gz"),
        (lambda: requirements(["nosuchpackage"]), "nosuchpackage must be installed here"),
        (lambda: requirements(["--index-url=http://other"]), "no name of a package"),
        (lambda: requirements(["numpy==1.0"]), "versions are those of this environment"),
    ],
)
def test_what_cannot_be_packed_is_refused_before_pip_runs(action: Any, words: str) -> None:
    with pytest.raises(pk.EngineError, match=words):
        action()


def test_other_contents_have_another_name() -> None:
    names = {
        archive_name(target, only=only) for target in (HERE, PackTarget("3.12")) for only in ((), ("polars",))
    }
    assert len(names) == 4
    assert archive_name(HERE, only=()) == archive_name(HERE, only=())
