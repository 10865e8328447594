"""What users write: streams, signals, expressions and SQL.

    sources.py   where streams come from; live_sources.py those that go on
    stream.py    the stream and its verbs; windowed.py, look_back.py, join.py what they lead to
    expr.py      expressions; aggregates.py and functions.py what they are made of
    execute.py   collect; live.py run and open; explain.py explain

Each verb checks what it is given, where it is written, and adds a node to a plan.
"""
