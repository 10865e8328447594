"""Compiled kernels are kept, found again, and never trusted blindly."""

from __future__ import annotations

import gc
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from weakref import ref

import numpy as np
import pytest

from penstock.codegen import files as files_module
from penstock.codegen.cache import Bounded, KernelCache, default_directory, object_key
from penstock.codegen.files import ObjectFiles, load, save, secret_in
from penstock.codegen.llvm import OptimisationLevel
from penstock.codegen.native import compile_kernel, compile_object
from penstock.errors import StateError
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, Kernel


def adding(amount: int) -> Kernel:
    k = KernelBuilder("adding")
    x, n = k.buffer("x", I64), k.scalar("n")
    with k.for_(0, n) as i:
        k.store(x, i, x[i] + amount)
    return k.build()


class Counting:
    """A compiler that counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, kernel: Kernel, effort: OptimisationLevel) -> bytes:
        self.calls += 1
        return compile_object(kernel, effort)


def adds(native, amount: int) -> bool:
    x = np.arange(5)
    native({"x": x, "n": 5})
    return x.tolist() == [index + amount for index in range(5)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "kernels"


@pytest.fixture
def only_file(directory: Path):
    """Fill a cache with one kernel and give its file."""
    KernelCache(directory).get(adding(1), compile_object)
    (file,) = directory.glob("*.pko")
    return file


def secret(directory: Path) -> bytes:
    return secret_in(directory / "key")


def test_a_kernel_is_compiled_once_per_cache() -> None:
    cache, build = KernelCache(), Counting()
    assert cache.get(adding(1), build).code is cache.get(adding(1), build).code
    assert build.calls == 1


def test_different_kernels_do_not_share_code() -> None:
    cache, build = KernelCache(), Counting()
    assert adds(cache.get(adding(1), build), 1)
    assert adds(cache.get(adding(2), build), 2)
    assert build.calls == 2


def test_compile_kernel_uses_the_cache_it_is_given() -> None:
    cache = KernelCache()
    assert compile_kernel(adding(1), cache).code is compile_kernel(adding(1), cache).code


def test_threads_that_ask_at_once_compile_once() -> None:
    cache, build = KernelCache(), Counting()
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: cache.get(adding(1), build).code, range(16)))
    assert (len(found), build.calls) == (1, 1)


def test_quick_code_is_kept_apart_and_never_written(directory: Path) -> None:
    cache, build = KernelCache(directory), Counting()
    quick = cache.soonest(adding(1), build)
    assert quick.effort is OptimisationLevel.QUICK
    assert adds(quick, 1)
    assert list(directory.iterdir()) == []
    assert cache.soonest(adding(1), build).code is quick.code
    full = cache.get(adding(1), build)
    assert full.effort is OptimisationLevel.FULL
    assert cache.soonest(adding(1), build).code is full.code
    assert cache.get(adding(1), build, OptimisationLevel.QUICK).code is quick.code
    assert build.calls == 2


def test_what_is_on_disk_is_found_without_compiling(directory: Path) -> None:
    KernelCache(directory).get(adding(1), compile_object)
    cache, build = KernelCache(directory), Counting()
    found = cache.soonest(adding(1), build)
    assert found.effort is OptimisationLevel.FULL
    assert adds(found, 1)
    assert cache.soonest(adding(1), build).code is found.code
    assert build.calls == 0


def test_a_second_process_finds_the_file(directory: Path) -> None:
    KernelCache(directory).get(adding(1), compile_object)
    build = Counting()
    assert adds(KernelCache(directory).get(adding(1), build), 1)
    assert build.calls == 0


def test_files_and_directory_are_private(directory: Path, only_file: Path) -> None:
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(only_file.stat().st_mode) == 0o600


def offsets(data: bytes) -> list[int]:
    """Pick bytes of every region of a file: all of the head, and a sample of the code."""
    code = data.index(b"\x7fELF") if b"\x7fELF" in data else len(data) // 2
    return [*range(0, code, 7), code - 1, code, code + 1, (code + len(data)) // 2, len(data) - 1]


def test_damage_anywhere_is_noticed_and_the_kernel_recompiled(directory: Path, only_file: Path) -> None:
    sound = only_file.read_bytes()
    for place in offsets(sound):
        only_file.write_bytes(sound[:place] + bytes([sound[place] ^ 0x40]) + sound[place + 1 :])
        with pytest.raises(StateError):
            load(only_file, object_key(adding(1)), secret(only_file.parent))
    build = Counting()
    assert adds(KernelCache(directory).get(adding(1), build), 1)
    assert build.calls == 1
    assert load(only_file, object_key(adding(1)), secret(only_file.parent))  # and the file is whole again


@pytest.mark.parametrize("kept", [0, 1, 15, 16, 23, 24, 60, 200, 500, -1])
def test_a_file_cut_short_is_ignored(directory: Path, only_file: Path, kept: int) -> None:
    only_file.write_bytes(only_file.read_bytes()[:kept])
    build = Counting()
    assert adds(KernelCache(directory).get(adding(1), build), 1)
    assert build.calls == 1


def test_bytes_appended_to_a_file_are_noticed(only_file: Path) -> None:
    only_file.write_bytes(only_file.read_bytes() + b"\x90")
    with pytest.raises(StateError, match="checksum"):
        load(only_file, object_key(adding(1)), secret(only_file.parent))


def test_another_kernels_file_under_this_name_is_refused(directory: Path, only_file: Path) -> None:
    save(only_file, object_key(adding(2)), compile_object(adding(2)), secret(directory))
    with pytest.raises(StateError, match="another kernel"):
        load(only_file, object_key(adding(1)), secret(only_file.parent))
    build = Counting()
    assert adds(KernelCache(directory).get(adding(1), build), 1)


def test_a_file_of_another_version_is_refused(only_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = object_key(adding(1))
    monkeypatch.setattr(files_module, "CODEGEN_VERSION", files_module.CODEGEN_VERSION + 1)
    with pytest.raises(StateError, match="another version"):
        load(only_file, key, secret(only_file.parent))


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_directory_others_can_write_is_not_used(directory: Path, mode: int) -> None:
    directory.mkdir()
    directory.chmod(mode)
    cache = KernelCache(directory)
    assert "written by others" in cache.disabled
    assert adds(cache.get(adding(1), compile_object), 1)
    assert list(directory.iterdir()) == []


def test_a_directory_of_another_user_is_not_used(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: directory.parent.stat().st_uid + 1)
    assert "another user" in KernelCache(directory).disabled


def test_a_file_in_place_of_the_directory_turns_files_off(directory: Path) -> None:
    directory.write_text("not a directory")
    cache = KernelCache(directory)
    assert cache.disabled
    assert adds(cache.get(adding(1), compile_object), 1)


def test_a_full_disk_does_not_stop_a_query(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files_module, "save", full)
    assert adds(KernelCache(directory).get(adding(1), compile_object), 1)


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Path, target: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(OSError, match="Input/output"):
        save(tmp_path / "kernel.pko", "key", b"code", b"secret")
    assert list(tmp_path.iterdir()) == []


def test_code_of_another_secret_is_not_loaded(directory: Path, only_file: Path) -> None:
    save(only_file, object_key(adding(1)), compile_object(adding(2)), b"of somebody else")
    with pytest.raises(StateError, match="checksum"):
        load(only_file, object_key(adding(1)), secret(directory))
    build = Counting()
    assert adds(KernelCache(directory).get(adding(1), build), 1)
    assert build.calls == 1


def test_code_in_memory_is_bounded_by_entries() -> None:
    cache, build = KernelCache(kernels=2), Counting()
    for amount in (1, 2, 1, 3):
        assert adds(cache.get(adding(amount), build), amount)
    assert (len(cache), build.calls) == (2, 3)
    cache.get(adding(1), build)  # used more recently than 2
    assert build.calls == 3
    cache.get(adding(2), build)
    assert build.calls == 4


def test_code_in_memory_is_bounded_by_bytes() -> None:
    one = len(compile_object(adding(1)))
    cache = KernelCache(size=one * 3)
    for amount in range(9):
        assert adds(cache.get(adding(amount), compile_object), amount)
    assert 1 <= len(cache) <= 3


def test_objects_that_are_offered_are_bounded_too() -> None:
    cache, build = KernelCache(kernels=2), Counting()
    cache.offer({object_key(adding(amount)): compile_object(adding(amount)) for amount in (1, 2, 3)})
    for amount in (2, 3, 1):
        assert adds(cache.get(adding(amount), build), amount)
    assert build.calls == 1


def test_code_that_leaves_the_cache_is_freed_when_nobody_uses_it() -> None:
    cache = KernelCache(kernels=1)
    held = cache.get(adding(1), compile_object)
    gone = ref(cache.get(adding(2), compile_object).code)
    cache.get(adding(3), compile_object)
    assert gone() is None
    assert adds(held, 1)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="memory maps are listed on Linux only")
def test_memory_maps_go_with_the_code() -> None:
    cache = KernelCache(kernels=10_000)
    code = compile_object(adding(1), OptimisationLevel.QUICK)
    for place in range(3_000):
        cache.get(adding(place), lambda kernel, effort: code, OptimisationLevel.QUICK)
    full = memory_maps()
    cache.clear()
    gc.collect()
    empty = memory_maps()
    assert (len(cache), empty < full) == (0, True)
    for place in range(300):
        KernelCache(kernels=4).get(adding(place), lambda kernel, effort: code, OptimisationLevel.QUICK)
    assert memory_maps() <= empty + 10


def memory_maps() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def test_a_cache_that_is_cleared_compiles_again_and_may_keep_its_files(directory: Path) -> None:
    cache, build = KernelCache(directory), Counting()
    cache.get(adding(1), build)
    cache.clear()
    assert (len(cache), len([*directory.glob("*.pko")])) == (0, 1)
    assert adds(cache.get(adding(1), build), 1)
    assert build.calls == 1
    cache.clear(files=True)
    assert [*directory.glob("*.pko")] == []
    assert adds(cache.get(adding(1), build), 1)
    assert build.calls == 2


def test_a_compiler_that_fails_leaves_no_lock_behind() -> None:
    cache = KernelCache()

    def broken(kernel: Kernel, effort: OptimisationLevel) -> bytes:
        raise MemoryError

    with pytest.raises(MemoryError):
        cache.get(adding(1), broken)
    assert adds(cache.get(adding(1), compile_object), 1)
    assert cache._compiling == {}


def test_files_used_least_recently_are_deleted_beyond_the_limits(directory: Path) -> None:
    files = ObjectFiles(directory, files=3)
    for place in range(32):
        files.keep(f"key {place}", b"code")
        os.utime(files.path(f"key {place}"), (place, place))
    assert files.find("key 0") == b"code"  # which is a use
    files.keep("key 32", b"code")
    assert [place for place in range(33) if files.find(f"key {place}")] == [0, 31, 32]


def test_files_are_bounded_by_bytes(directory: Path) -> None:
    files = ObjectFiles(directory, size=10_000)
    for place in range(33):
        files.keep(f"key {place}", bytes(3_000))
        os.utime(files.path(f"key {place}"), (place + 1, place + 1))
    assert sum(file.stat().st_size for file in directory.glob("*.pko")) <= 10_000
    assert files.find("key 32")


def test_what_a_killed_process_was_writing_is_deleted(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o700)
    for name, age in (("old", 7_200), ("new", 0)):
        (directory / f".{name}.tmp").write_bytes(b"")
        os.utime(directory / f".{name}.tmp", (time.time() - age,) * 2)
    ObjectFiles(directory).keep("key", b"code")
    assert [file.name for file in directory.glob(".*.tmp")] == [".new.tmp"]


DIRECTORIES = [
    ({"PENSTOCK_CACHE_DIR": "here", "XDG_CACHE_HOME": "there"}, Path("here")),
    ({"PENSTOCK_CACHE_DIR": "", "XDG_CACHE_HOME": "there"}, None),
    ({"XDG_CACHE_HOME": "there"}, Path("there/penstock")),
    ({"XDG_CACHE_HOME": ""}, Path.home() / ".cache/penstock"),
    ({}, Path.home() / ".cache/penstock"),
]


@pytest.mark.parametrize(("environment", "expected"), DIRECTORIES)
def test_the_directory_follows_the_environment(environment: dict[str, str], expected: Path | None) -> None:
    assert default_directory(environment) == expected


# --- A bounded map forgets what was used least recently.


def filled(entries: int, size: int, *values: bytes) -> Bounded[bytes]:
    found: Bounded[bytes] = Bounded(entries, size, len)
    for place, value in enumerate(values):
        found.put(str(place), value)
    return found


def test_the_least_recently_used_leaves_first() -> None:
    bounded = filled(2, 100, b"a", b"b")
    assert bounded.get("0") == b"a"
    assert bounded.put("2", b"c") == [b"b"]
    assert (bounded.get("1"), len(bounded), bounded.bytes) == (None, 2, 2)


def test_as_many_leave_as_the_bytes_of_a_new_value_ask_for() -> None:
    bounded = filled(9, 10, bytes(4), bytes(4), bytes(2))
    assert bounded.put("large", bytes(7)) == [bytes(4), bytes(4)]
    assert (len(bounded), bounded.bytes) == (2, 9)


def test_a_value_that_is_too_large_by_itself_is_kept_alone() -> None:
    bounded = filled(9, 10, bytes(4))
    assert bounded.put("large", bytes(70)) == [bytes(4)]
    assert bounded.get("large") == bytes(70)


def test_a_value_takes_the_place_of_the_one_before() -> None:
    bounded = filled(9, 10, b"aa")
    assert bounded.put("0", b"b") == [b"aa"]
    assert (len(bounded), bounded.bytes, bounded.get("0")) == (1, 1, b"b")


def test_all_leave_at_once() -> None:
    bounded = filled(9, 10, b"a", b"b")
    assert bounded.clear() == [b"a", b"b"]
    assert (len(bounded), bounded.bytes) == (0, 0)
