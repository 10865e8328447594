"""`python -m penstock` is the command `penstock`."""

from penstock.cli.main import app

app(prog_name="penstock")
