"""Adaptation while a query runs: when to profile, what the sensors say, what was changed and why. It depends on no operator."""
