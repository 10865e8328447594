"""From the logical plan to the time-centric IR."""
