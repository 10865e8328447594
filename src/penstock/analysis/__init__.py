"""Pure questions about programs: order, totality, boundaries, partition keys. Nothing here rewrites a program."""
