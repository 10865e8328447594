"""The user API: streams, signals, expressions and SQL.

    sources.py   streams of files and Arrow data; live_sources.py unbounded streams
    stream.py    the stream and its verbs; windowed.py, join.py the results of some verbs
    expr.py      expressions; aggregates.py and functions.py the functions that build them
    execute.py   collect; live.py run and open; explain.py explain

Each verb checks its arguments when it is called, and adds a node to the logical plan.
"""
