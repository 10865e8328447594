"""Running compiled queries.

    session.py   stages wired together, rows and watermarks flowing through them
    window_stage.py, worker.py, table.py, assembly.py   windows made of panes; resting.py workers between two runs
    lanes/       windows that panes cannot hold
    joins/       joins as stages; joining/ the eight algorithms; adapt/ the choice among them
    signals/     values that vary over time
    state/       what a run remembers, as Arrow rows

The runtime never sees a query: `programs.py` is what the compiler hands over.
"""
