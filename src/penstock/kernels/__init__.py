"""Programs in the loop IR, built by Python functions: tables of panes and keys, sliding windows, sorts, joins, signals."""
