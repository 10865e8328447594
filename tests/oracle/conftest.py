"""Let `HYPOTHESIS_PROFILE=fuzz` in the environment choose the profile (see `effort.py`)."""

from __future__ import annotations

import os

from hypothesis import settings

if profile := os.environ.get("HYPOTHESIS_PROFILE"):
    settings.load_profile(profile)
