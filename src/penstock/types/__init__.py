"""Arrow types, times, durations and window types, used by all other packages."""
