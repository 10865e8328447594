"""Two builds of Penstock in turns: the same queries through the public API, by processor time, start-up included."""
