"""Signals: values that vary over time, and the algebra on them."""
