"""The table of panes by keys that a window's rows are folded into, and the hash table that numbers keys."""
