"""What several operators share: expressions, states, hash tables, sorting, sorted partitions, sliding windows, join algorithms."""
