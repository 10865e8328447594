"""The runtime: runs compiled queries.

    session.py   the graph of stages, with rows and watermarks flowing through; guarded_step.py whether the last call completed
    window_stage.py, worker.py, table.py   fold rows into panes
    pane_ownership.py, pane_assembly.py, emission.py   panes to windows to results; fragments.py the exchange form of state
    sorted_partitions/   windows that panes cannot represent
    joins/       join stages; join_algorithms/ the eight algorithms; adapt/ the choice among them
    signals/     values that vary over time
    state/       the state of a run, as Arrow rows

The runtime does not depend on queries: `programs.py` is its interface to the compiler.
"""
