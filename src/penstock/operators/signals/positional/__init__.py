"""Signals over regular time: a value is an array indexed by position."""
