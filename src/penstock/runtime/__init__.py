"""Running compiled queries.

    session.py   stages wired together, rows and watermarks flowing through them; steps.py whether the last call completed
    window_stage.py, worker.py, table.py   rows become panes
    owners.py, assembly.py, emission.py    panes become windows, and windows results; fragments.py state on the move
    lanes/       windows that panes cannot hold
    joins/       joins as stages; joining/ the eight algorithms; adapt/ the choice among them
    signals/     values that vary over time
    state/       what a run remembers, as Arrow rows

The runtime never sees a query: `programs.py` is what the compiler hands over.
"""
