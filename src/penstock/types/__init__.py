"""Arrow types, times, durations and shapes of windows: the words that every other package uses."""
