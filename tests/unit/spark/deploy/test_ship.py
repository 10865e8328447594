"""Archives in the user's cache: packed once, few of them kept, and out of reach of other users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as pk
from penstock.spark.deploy import ship
from penstock.spark.deploy.pack import PackTarget


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The archives that were packed, in order; the cache is a folder of this test."""
    made: list[Path] = []

    def pack(path: Path, target: PackTarget, add: Any) -> Path:
        made.append(path)
        path.write_bytes(b"archive")
        return path

    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(ship, "pack_archive", pack)
    return made


def test_an_archive_is_packed_once_for_each_target(packed: list[Path]) -> None:
    first = ship._packed(PackTarget("3.11"), ())
    assert ship._packed(PackTarget("3.11"), ()) == first
    assert ship._packed(PackTarget("3.12"), ()) != first
    assert len(packed) == 2


def test_the_oldest_archives_go(packed: list[Path]) -> None:
    made = [ship._packed(PackTarget(f"3.{minor}"), ()) for minor in range(11, 11 + ship.KEPT + 2)]
    assert [path.is_file() for path in made] == 2 * [False] + ship.KEPT * [True]


def test_a_cache_that_others_can_write_to_is_refused(packed: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "archives"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(
        pk.EngineError, match="can be written by others; set PENSTOCK_CACHE_DIR, or pass archive="
    ):
        ship._packed(PackTarget(), ())
    assert packed == []


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda: ship._given(Path("nowhere.tar.gz")), "there is no archive 'nowhere.tar.gz'"),
        (lambda: pk.ship("spark"), "ship takes a SparkSession"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_shipped_is_refused(action: Any, words: str) -> None:
    with pytest.raises(pk.EngineError, match=words):
        action()


def test_without_a_cache_an_archive_must_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", "")
    with pytest.raises(pk.EngineError, match="pass archive="):
        ship._packed(PackTarget(), ())
