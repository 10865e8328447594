"""Translate the logical plan to the time-centric IR."""
