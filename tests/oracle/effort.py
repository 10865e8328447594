"""How many examples each oracle test draws: random ones, few by default, many under `fuzz`.

The profiles of `tests/conftest.py` are derandomised for the unit tests. The oracle tests draw new
examples in every run on a desk, and under `fuzz`: that is how they find what yesterday's run did not. On a CI
machine (CI is set) they draw the same ones for the same tests, so that a failure is the change's own.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

FACTORS = {"quick": 0.3, "ci": 0.5, "fuzz": 100.0}
# Whole queries with their data are large examples, and some draws are thrown away.
ACCEPTED = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.large_base_example,
    HealthCheck.filter_too_much,
)


# Shrinking compiles hundreds of queries, minutes for one failure: left to `fuzz`, which can be given
# the blob that a failure prints (@reproduce_failure).
UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)


def effort(examples: int) -> settings:
    """Draw about `examples` examples, scaled by the profile."""
    profile = settings.get_current_profile_name()
    factor = FACTORS.get(profile, 1.0)
    return settings(
        max_examples=max(3, int(examples * factor)),
        derandomize=bool(os.environ.get("CI")) and profile != "fuzz",
        deadline=None,
        print_blob=True,
        phases=tuple(Phase) if profile == "fuzz" else UNSHRUNK,
        suppress_health_check=ACCEPTED,
    )
