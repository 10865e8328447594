"""`python -m benchmarks SUITE`."""

from benchmarks.command import app

app(prog_name="python -m benchmarks")
