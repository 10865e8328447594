"""Hypothesis profiles: how hard each target tries. Chosen with --hypothesis-profile."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Compiling a kernel takes longer than Hypothesis expects of an example: no deadlines, no speed checks.
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

settings.register_profile("quick", _COMMON, max_examples=10, derandomize=True)
settings.register_profile("ci", _COMMON, max_examples=50, derandomize=True)
settings.register_profile("fuzz", _COMMON, max_examples=5_000, print_blob=True)
settings.load_profile("ci")
