"""Kill drivers, JVMs and workers at random moments, and count: python -m tests.fault.campaign --kills 200 --seed 0

What has been killed so far is kept in a folder, so a campaign that is stopped goes on where it was; --again begins anew.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from tests.fault.cases import FILES, check, filled
from tests.fault.processes import kill, kill_all, started, victims

KINDS = ("driver", "jvm", "worker")
PATIENCE = 420.0  # seconds until a driver that has not ended is taken for stuck
WORKERS_A_LIFE = 8
# On a busy machine Spark gives up what it starts after ten seconds, which cannot be set: one more crash, none of ours.
GIVEN_UP = b"Python worker failed to connect back"
PAUSE = 3.0  # seconds at most between a moment of interest, or a kill, and the next kill: some batches' time


@dataclass
class Campaign:
    """Cases one after the other: each is killed and started again until it ends by itself, then its output is checked."""

    folder: Path
    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    case: int = 0
    lives: int = 0

    @property
    def killed(self) -> int:
        return self.kills.total() - self.kills["commits"]

    def save(self) -> None:
        kept = {"kills": dict(self.kills), "case": self.case, "lives": self.lives}
        (self.folder / "campaign.json").write_text(json.dumps(kept))

    @staticmethod
    def load(folder: Path, seed: int) -> Campaign:
        """Go on with what is in a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "campaign.json"
        if not path.exists():
            return Campaign(folder, seed)
        kept = json.loads(path.read_text())
        return Campaign(folder, seed, Counter(kept["kills"]), kept["case"], kept["lives"])

    def run(self, wanted: int, seconds: float) -> None:
        """Kill until there have been so many, or time is up; then let the last case come to its end."""
        end = time.monotonic() + seconds
        while self.killed < wanted and time.monotonic() < end:
            self._case(wanted, end)

    def _case(self, wanted: int, end: float) -> None:
        folder = self.folder / f"case-{self.case}"
        if not (folder / "expected.parquet").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            pq.write_table(filled(folder, self.seed * 1_000_003 + self.case), folder / "expected.parquet")
        over = False
        while not over:
            over = self._life(folder, self.killed < wanted and time.monotonic() < end)
            self.lives += 1
            self.save()
            _say(f"case {self.case}, life {self.lives}: {self.killed} kills {dict(self.kills)}")
        check(
            folder,
            pq.read_table(folder / "expected.parquet"),
            FILES,
            f"case {self.case}, {self.killed} kills",
        )
        shutil.rmtree(folder)
        self.case += 1
        self.save()

    def _life(self, folder: Path, deadly: bool) -> bool:
        """Let a driver live until it ends or is killed; tell whether it has come to its end by itself."""
        chance = random.Random(f"{self.seed}/{self.lives}")
        if deadly and chance.random() < 0.3:
            self._uncommitted(folder)
        (folder / "running").unlink(missing_ok=True)
        said = _size(folder / "driver.log")
        process = started(folder)
        try:
            killed = self._wounds(process, folder, chance) if deadly else False
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver of {folder} does not end; see its driver.log") from None
        finally:
            kill_all(process)
        if code and not killed and GIVEN_UP not in (folder / "driver.log").read_bytes()[said:]:
            raise AssertionError(f"the driver of {folder} ended with {code}; see its driver.log")
        return code == 0

    def _wounds(self, process: subprocess.Popen[bytes], folder: Path, chance: random.Random) -> bool:
        """Kill something of a driver, workers several times."""
        kind = chance.choice(KINDS)
        many = chance.randint(2, WORKERS_A_LIFE) if kind == "worker" else 1
        _wait(process, folder, chance)
        killed = False
        while many and not _ended(process, chance.uniform(0.1, PAUSE)):
            targets = victims(process.pid, kind)  # none while it starts
            if targets and kill(chance.choice(targets)):
                self.kills[kind] += 1
                killed, many = True, many - 1
        return killed

    def _uncommitted(self, folder: Path) -> None:
        """Be the crash between the sink's commit and Spark's: the last batch comes again."""
        found = [
            entry for entry in (folder / "checkpoint" / "commits").glob("[0-9]*") if entry.name.isdigit()
        ]
        if found:
            newest = max(found, key=lambda path: int(path.name))
            newest.unlink()
            (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
            self.kills["commits"] += 1


def _wait(process: subprocess.Popen[bytes], folder: Path, chance: random.Random) -> None:
    """Wait for a moment of interest: none in particular, the start of the query, or the end of a batch."""
    moment = chance.choices(("any", "running", "progress"), (1, 2, 4))[0]
    if moment == "any":
        _ended(process, chance.uniform(0, 20))
        return
    before = _written(folder / moment)
    end = time.monotonic() + PATIENCE
    while _written(folder / moment) == before and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--minutes", type=float, default=600.0, help="stop after this time; go on another day"
    )
    parser.add_argument("--folder", type=Path, default=Path(".cache") / "fault")
    parser.add_argument("--again", action="store_true", help="forget what was killed before")
    given = parser.parse_args(arguments)
    folder = given.folder / f"seed-{given.seed}"
    if given.again:
        shutil.rmtree(folder, ignore_errors=True)
    campaign = Campaign.load(folder.resolve(), given.seed)
    campaign.run(given.kills, given.minutes * 60)
    _say(
        f"{campaign.killed} kills {dict(campaign.kills)} in {campaign.case} cases: nothing lost, nothing twice"
    )


if __name__ == "__main__":
    main()
