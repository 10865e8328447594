"""Packages of Java, fetched by Maven coordinates once and kept in the user's cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from penstock.codegen.cache import default_directory

CACHE = (default_directory() or Path(".cache")) / "jars"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>penstock</groupId><artifactId>fetched</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
_SECONDS = 400


class NoPackage(Exception):  # noqa: N818 - no error of a user's
    """Why there is none."""


def fetched(*coordinates: str) -> Path:
    """Fetch packages and what they need, once. Returns the folder of their jars."""
    _, artifact, version = coordinates[0].split(":")
    more = "".join(f"-{hashlib.sha256(name.encode()).hexdigest()[:8]}" for name in coordinates[1:])
    cache = CACHE / f"{artifact}-{version}{more}"
    if (cache / "done").exists():
        return cache / "jars"
    maven = shutil.which("mvn")
    if maven is None:
        raise NoPackage("mvn is not installed: jars cannot be fetched")
    cache.mkdir(parents=True, exist_ok=True)
    needed = "".join(_DEPENDENCY.format(*name.split(":")) for name in coordinates)
    (cache / "pom.xml").write_text(_POM.format(needed))
    options = [
        "-q",
        "-B",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={cache / 'jars'}",
        f"-Dmaven.repo.local={cache / 'repository'}",
    ]
    done = subprocess.run(
        [maven, *options, "dependency:copy-dependencies"],
        cwd=cache,
        capture_output=True,
        check=False,
        timeout=_SECONDS,
    )
    if done.returncode:
        raise NoPackage(f"{' '.join(coordinates)} cannot be fetched: {done.stdout.decode()[-300:]}")
    shutil.rmtree(cache / "repository", ignore_errors=True)
    (cache / "done").touch()
    return cache / "jars"
