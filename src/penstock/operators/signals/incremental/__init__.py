"""Signals of a running query, from event to event: what a push costs depends on its samples, not on those held."""
