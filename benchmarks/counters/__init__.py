"""Instructions, branches and cache misses a row, as Table 1 of the Grizzly paper: counted by valgrind's callgrind, not timed."""
