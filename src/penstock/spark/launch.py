"""Start Spark's JVM without settings on its command line, which every user of the machine can read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ARGUMENTS = "PYSPARK_SUBMIT_ARGS"  # arguments that PySpark appends to the spark-submit command
SHELL = "pyspark-shell"
_FILE = "--properties-file"


def launch(settings: Mapping[str, str], folder: str) -> None:
    """Start the JVM that sessions of this process share, unless it runs.

    PySpark passes the settings of a builder as arguments if it starts the JVM, and over an authenticated connection if the
    JVM already runs. This function starts the JVM with a settings file that only the owner can read, and deletes the file
    once the JVM runs.
    """
    from pyspark import SparkContext  # noqa: PLC0415 - Spark loads when it is used

    if SparkContext._gateway is not None:  # noqa: SLF001 - no public attribute shows whether a JVM runs
        return
    with _settings_file(settings, Path(folder)) as path, _arguments(path):
        SparkContext.getSystemProperty("java.version")  # the first request starts the JVM


@contextmanager
def _settings_file(settings: Mapping[str, str], folder: Path) -> Iterator[Path]:
    path = folder / "launch.properties"
    text = "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
        yield path
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _arguments(path: Path) -> Iterator[None]:
    """Pass the file to spark-submit. `spark-defaults.conf` still applies; a file named by the user comes later and wins."""
    given = os.environ.get(ARGUMENTS)
    os.environ[ARGUMENTS] = f"{_FILE} '{path}' --load-spark-defaults {given or SHELL}"
    try:
        yield
    finally:
        if given is None:
            os.environ.pop(ARGUMENTS, None)
        else:
            os.environ[ARGUMENTS] = given


def _escaped(text: str) -> str:
    r"""Escape a name or a value for a Java properties file.

    >>> print(_escaped("a=b\\c:d e\n\u00e9"))
    a\u003db\u005cc\u003ad\u0020e\u000a\u00e9
    """
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[place : place + 2]) for place in range(0, len(units), 2)]
    return "".join(
        chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\u{code:04x}" for code in codes
    )
