"""Options for the package `deltalake`, which opens the stores of its tables itself."""

from __future__ import annotations

from penstock.errors import UnsupportedError
from penstock.storage.access import Access
from penstock.storage.options import CLIENT, RETRY, for_kind, with_profile
from penstock.storage.uri import CLOUD, Uri

_NATIVE = ("hdfs", "viewfs")


def delta_options(path: str, access: Access) -> dict[str, str]:
    """Return the options for a table in a store."""
    if access.filesystem is not None:
        raise UnsupportedError(f"the Delta table {path!r} is reached by storage_options=, not by filesystem=")
    uri = Uri.of(path)
    scheme = "" if uri is None else uri.scheme
    if scheme in _NATIVE:
        return {}  # it speaks to name nodes by their own protocol, as HADOOP_CONF_DIR and HADOOP_USER_NAME say
    kind = CLOUD.get(scheme)
    if kind is None:
        raise UnsupportedError(
            f"a Delta table at {path!r} cannot be reached; there are local paths, {', '.join((*CLOUD, *_NATIVE))}"
        )
    options = for_kind(access.options, kind)
    if kind != "s3":
        return options
    shared = CLIENT | RETRY
    named = with_profile(options)
    return {name if name in shared else f"aws_{name}": value for name, value in named.items()}
