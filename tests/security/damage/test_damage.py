"""Damaged files are read or refused by name, never the end of the process. `make damage` reads ten thousand of each format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.security.damage.campaign import campaign, footers_campaign
from tests.security.damage.originals import FORMATS
from tests.security.damage.reading import ANSWER, REFUSED


@pytest.mark.parametrize(("formats", "decoder"), [(tuple(FORMATS), "arrow"), (("parquet",), "polars")])
def test_damaged_files_of_every_format_are_read_or_refused_by_name(
    tmp_path: Path, formats: tuple[str, ...], decoder: str
) -> None:
    result = campaign(formats, tmp_path, files=200, seed=25, decoder=decoder)
    assert result.findings == []
    assert result.read == 200
    assert result.outcomes.keys() == {ANSWER, REFUSED}


def test_damaged_footers_are_refused_or_can_be_asked_about(tmp_path: Path) -> None:
    result = footers_campaign(tmp_path, files=2_000, seed=25)
    assert result.findings == []
    assert result.read == 2_000
