"""Find versions without importing what they belong to."""

from __future__ import annotations

from importlib import metadata


def installed_version(name: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def own_version() -> str:
    """Penstock's version; a source tree that is not installed has none."""
    return installed_version("penstock") or "(not installed)"
