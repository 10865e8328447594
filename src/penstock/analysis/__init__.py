"""Pure analyses of IR programs: order, totality, boundaries, partition keys. Nothing here rewrites a program."""
