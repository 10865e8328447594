"""The physical plan: `nodes.py` is its grammar, `build.py` makes it, `choose_*.py` decide, `verify.py` checks it, `show.py` prints it."""
