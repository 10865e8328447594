"""Signals at run time: points of temporal objects in lanes, one lane a key."""
