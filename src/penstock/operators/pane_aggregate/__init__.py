"""Windows on a grid of time: rows are folded into states per (pane, key), and panes are merged into windows."""
