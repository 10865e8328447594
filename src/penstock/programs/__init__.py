"""Programs: kernels joined with the back end that runs them, ready for the runtime.

One for each way in which objects of the IR run: panes, lanes, joins, signals, rows.
"""
