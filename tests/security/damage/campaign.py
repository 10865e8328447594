"""Damage files of every format and scan them: python -m tests.security.damage.campaign --files 10000 --seed 0

What is damaged is either read or refused with an error of Penstock that names the file. Anything else is a finding: a
process that dies, a foreign exception, a file that never ends, memory without bounds. Damaged files of findings are kept.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.law.source import ROOT
from tests.security.damage.originals import FORMATS, originals
from tests.security.damage.reading import ANSWER, REFUSED, kept

MOST_FINDINGS = 200  # of one format: more say nothing new
FOOTERS_A_FILE = 10  # that many more footers are damaged than files
NAMES = [*FORMATS, "polars", "footers"]


@dataclass
class Result:
    """What came of the files of one format."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, str, str]] = field(default_factory=list)

    @property
    def read(self) -> int:
        return self.outcomes.total()


def campaign(
    formats: Sequence[str], folder: Path, files: int, seed: int, decoder: str = "arrow", first: int = 0
) -> Result:
    """Scan so many damaged files; a process that dies is started again behind the file that ended it."""
    made, listing = folder / "files", folder / "files.json"
    good = [original for format in formats for original in originals(format, made / format)]
    listing.write_text(json.dumps([asdict(original) for original in good]))
    shutil.rmtree(_good(listing), ignore_errors=True)
    shutil.copytree(made, _good(listing))
    result, last = Result(), first + files
    while first < last and len(result.findings) < MOST_FINDINGS:
        first = _life(listing, first, last, seed, decoder, result)
    return result


def _life(listing: Path, first: int, last: int, seed: int, decoder: str, result: Result) -> int:
    """Let one process read until it ends; give the number of the next file."""
    command = [sys.executable, "-m", "tests.security.damage.reading", str(listing)]
    options = ["--seed", seed, "--decoder", decoder, "--first", first, "--last", last]
    begun = None
    with tempfile.TemporaryFile("w+") as errors:
        whole = [*command, *map(str, options)]
        with subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            for line in process.stdout:
                kind, number, what = json.loads(line)
                begun = (number, what) if kind == "begin" else None
                if kind != "begin":
                    _count(result, kind, number, what)
        errors.seek(0)
        said = errors.read()
    code = process.returncode
    if begun is None:
        assert code == 0, said
        return last
    number, victim = begun
    _count(result, "died", number, f"exit {code}: {victim}\n{said[-3000:]}")
    _restore(listing, Path(victim), number)
    return number + 1


def footers_campaign(folder: Path, files: int, seed: int) -> Result:
    """Ask about so many damaged footers of Parquet files, which is quick."""
    originals("parquet", folder / "footers")
    result, first = Result(), 0
    while first < files and len(result.findings) < MOST_FINDINGS:
        command = [sys.executable, "-m", "tests.security.damage.footers", str(folder / "footers")]
        options = ["--seed", seed, "--first", first, "--files", files - first]
        done = subprocess.run(
            [*command, *map(str, options)], capture_output=True, text=True, check=False, cwd=ROOT
        )
        *begun, last = done.stdout.splitlines() or ["0"]
        if done.returncode == 0:
            result.outcomes.update(json.loads(last))
            return result
        first = int(last) + 1
        _count(result, "died", int(last), f"exit {done.returncode}\n{done.stderr[-3000:]}")
        result.outcomes["begun"] += len(begun)
    return result


def _restore(listing: Path, victim: Path, number: int) -> None:
    """Keep the file that ended a process, and put the good one back."""
    kept(listing, victim, number)
    made = listing.with_suffix("")
    shutil.copyfile(_good(listing) / victim.relative_to(made), victim)


def _good(listing: Path) -> Path:
    return listing.with_suffix(".good")


def _count(result: Result, kind: str, number: int, what: str) -> None:
    result.outcomes[kind] += 1
    if kind not in (ANSWER, REFUSED):
        result.findings.append((number, kind, what))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--format", choices=NAMES, action="append")
    parser.add_argument(
        "--folder", type=Path, default=None, help="where files are made; kept if there are findings"
    )
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="penstock-damage-"))
    found = 0
    for name in given.format or NAMES:
        (folder / name).mkdir(parents=True, exist_ok=True)
        if name == "footers":
            result = footers_campaign(folder / name, FOOTERS_A_FILE * given.files, given.seed)
        else:
            format, decoder = ("parquet", "polars") if name == "polars" else (name, "arrow")
            result = campaign([format], folder / name, given.files, given.seed, decoder, given.first)
        sys.stdout.write(f"{name}: {dict(result.outcomes)}\n")
        for number, kind, what in result.findings:
            sys.stdout.write(f"  {name} {number} {kind}: {what}\n")
        sys.stdout.flush()
        found += len(result.findings)
    if not found and given.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
