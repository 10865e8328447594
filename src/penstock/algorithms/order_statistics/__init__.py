"""Medians, quantiles, modes and distinct counts over moving frames of ranked rows."""
