"""Code is only kept where no other user can put their own in its place."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.codegen.cache import KernelCache
from penstock.codegen.files import private_directory, secret_in
from penstock.codegen.native import compile_object
from penstock.errors import StateError
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import Kernel


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "parent" / "kernels"


def doubling() -> Kernel:
    k = KernelBuilder("doubling")
    n = k.scalar("n")
    k.ret(n + n)
    return k.build()


def works(cache: KernelCache) -> bool:
    return cache.get(doubling(), compile_object)({"n": 21}) == 42


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_a_parent_that_others_can_write_to_turns_files_off(directory: Path, mode: int) -> None:
    directory.mkdir(parents=True, mode=0o700)
    directory.parent.chmod(mode)
    cache = KernelCache(directory)
    assert f"{directory.parent}, which holds" in cache.disabled
    assert "written by others" in cache.disabled
    assert works(cache)
    assert list(directory.iterdir()) == []


def test_every_parent_is_looked_at(directory: Path) -> None:
    directory.mkdir(parents=True, mode=0o700)
    directory.parent.parent.chmod(0o777)
    assert f"{directory.parent.parent}, which holds" in KernelCache(directory).disabled


def test_where_only_owners_can_rename_a_shared_parent_is_harmless(directory: Path) -> None:
    directory.mkdir(parents=True, mode=0o700)
    directory.parent.chmod(0o1777)
    cache = KernelCache(directory)
    assert cache.disabled == ""
    assert works(cache)
    assert [*directory.glob("*.pko")]


def test_a_parent_of_another_user_turns_files_off(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir(parents=True, mode=0o700)
    real = Path.stat

    def foreign(self: Path, **options: bool) -> os.stat_result:
        status = real(self, **options)
        changed = [*status[:4], 12_345, *status[5:]]
        return os.stat_result(changed) if self == directory.parent else status

    monkeypatch.setattr(Path, "stat", foreign)
    assert f"{directory.parent}, which holds" in KernelCache(directory).disabled
    assert "another user" in KernelCache(directory).disabled


def test_a_link_is_followed_once_and_its_target_checked(directory: Path, tmp_path: Path) -> None:
    directory.mkdir(parents=True, mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(directory)
    assert private_directory(link) == (directory.resolve(), "")
    directory.parent.chmod(0o777)
    assert "written by others" in private_directory(link)[1]


def test_directories_are_made_private_whatever_the_mask(directory: Path) -> None:
    before = os.umask(0)
    try:
        assert private_directory(directory) == (directory.resolve(), "")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (directory, directory.parent)] == [0o700, 0o700]


def test_the_secret_is_made_once_and_readable_by_its_user_alone(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: secret_in(tmp_path / "key"), range(16)))
    assert [len(value) for value in found] == [32]
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_two_directories_have_different_secrets(tmp_path: Path) -> None:
    assert secret_in(tmp_path / "one") != secret_in(tmp_path / "other")


@pytest.mark.parametrize("content", [b"", b"short", bytes(33)])
def test_a_secret_of_another_length_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(StateError, match="not a secret of this user"):
        secret_in(tmp_path / "key")


def test_a_secret_that_others_can_read_turns_files_off(directory: Path) -> None:
    assert works(KernelCache(directory))
    (directory / "key").chmod(0o644)
    (file,) = directory.glob("*.pko")
    file.unlink()
    cache = KernelCache(directory)
    assert works(cache)
    assert "not a secret of this user" in cache.disabled
    assert [*directory.glob("*.pko")] == []


def test_a_link_in_place_of_the_secret_is_not_followed(tmp_path: Path) -> None:
    secret_in(tmp_path / "other")
    (tmp_path / "key").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        secret_in(tmp_path / "key")
