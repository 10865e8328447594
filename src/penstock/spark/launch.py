"""Start Spark's JVM without writing settings on its command line, which every user of the machine can read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ARGUMENTS = "PYSPARK_SUBMIT_ARGS"  # what PySpark appends to the command line of spark-submit
SHELL = "pyspark-shell"
_FILE = "--properties-file"


def launch(settings: Mapping[str, str], folder: str) -> None:
    """Start the JVM that sessions of this process share, unless it runs.

    PySpark passes the settings of a builder as arguments if it has to start the JVM for it, and over an
    authenticated connection once the JVM runs. So it is started here, with a file that only its owner can read and that is gone
    when the JVM is there.
    """
    from pyspark import SparkContext  # noqa: PLC0415 - Spark loads when it is used

    if SparkContext._gateway is not None:  # noqa: SLF001 - nothing else tells whether a JVM runs
        return
    with _settings_file(settings, Path(folder)) as path, _arguments(path):
        SparkContext.getSystemProperty("java.version")  # what is asked first starts the JVM


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
    """Name the file to spark-submit. `spark-defaults.conf` counts as before; a file that the user names comes later, and wins."""
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
    r"""Write a name or a value as Java reads properties.

    >>> print(_escaped("a=b\\c:d e\n\u00e9"))
    a\u003db\u005cc\u003ad\u0020e\u000a\u00e9
    """
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[place : place + 2]) for place in range(0, len(units), 2)]
    return "".join(
        chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\u{code:04x}" for code in codes
    )
