"""The pane table (panes × groups) into which a window's rows are folded, and the hash table that numbers keys."""
