"""Options for object stores, in the names of `object_store`, which Delta and Polars use too.

Names of fsspec are translated, since pandas users use them. Values may be secret: they are in no message.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import EngineError

Pairs = tuple[tuple[str, str], ...]

_FSSPEC = {
    "key": "access_key_id",
    "secret": "secret_access_key",
    "anon": "skip_signature",
    "endpoint_url": "endpoint",
    "region_name": "region",
}
_PREFIXES = {"s3": "aws_", "gs": "google_", "azure": "azure_storage_"}
# Options of the HTTP client and of retries, which all stores share.
CLIENT = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
RETRY = frozenset({"max_retries", "retry_timeout"})
_KEYS = ("access_key_id", "secret_access_key", "session_token")
_CLOUDS = ("AWS_", "AZURE_", "GOOGLE_")
_AWS_FILES = (("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config"))
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_OTHER_SOURCES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


def pairs_of(given: object) -> Pairs:
    """Check `storage_options=`, and return them in a fixed order.

    >>> pairs_of({"endpoint_url": "http://localhost:9000", "AWS_REGION": "eu-west-1"})
    (('aws_region', 'eu-west-1'), ('endpoint', 'http://localhost:9000'))
    """
    if given is None:
        return ()
    example = "{'region': 'eu-west-1'}"
    if not isinstance(given, Mapping):
        raise EngineError(
            f"storage_options is a mapping of names to texts, such as {example}, not a {type(given).__name__}"
        )
    return tuple(sorted((_name(name), _text(name, value)) for name, value in given.items()))


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise EngineError(f"the names of storage_options are texts, not a {type(name).__name__}")
    return _FSSPEC.get(name.lower(), name.lower())


def _text(name: object, value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
    raise EngineError(f"the storage option {name!r:.60} is a text, not a {type(value).__name__}")


def for_kind(pairs: Pairs, kind: str) -> dict[str, str]:
    """Return options by the short names of a kind of store.

    >>> for_kind((("aws_region", "eu-west-1"),), "s3")
    {'region': 'eu-west-1'}
    """
    prefix = _PREFIXES[kind]
    named = {name.removeprefix(prefix).removeprefix("azure_"): value for name, value in pairs}
    if "endpoint_url" in named:
        named["endpoint"] = named.pop("endpoint_url")
    addresses = (
        [named.get("endpoint")] if kind != "s3" else [named.get("endpoint"), *map(os.environ.get, _ENDPOINTS)]
    )
    if next(filter(None, addresses), "").startswith("http://"):
        named.setdefault("allow_http", "true")  # the user wrote an address without TLS
    return named


def with_profile(options: Mapping[str, str]) -> dict[str, str]:
    """Add the keys and the region of an AWS profile, which `object_store` does not read, where nothing else gives them."""
    profile = os.environ.get("AWS_PROFILE", "default")
    given = dict(options)
    if not any(name in given for name in (*_KEYS, "skip_signature")) and not any(
        name in os.environ for name in _OTHER_SOURCES
    ):
        found = _section(*_AWS_FILES[0], profile)
        given |= {name: found[f"aws_{name}"] for name in _KEYS if f"aws_{name}" in found}
    if (
        not {"region", "default_region"} & given.keys()
        and not {"AWS_REGION", "AWS_DEFAULT_REGION"} & os.environ.keys()
    ):
        section = profile if profile == "default" else f"profile {profile}"
        found = _section(*_AWS_FILES[1], section)
        given |= {"region": found["region"]} if "region" in found else {}
    return given


def environment() -> Pairs:
    """Return everything outside of options that decides about access, to notice when it changes."""
    variables = ((name, value) for name, value in os.environ.items() if name.startswith(_CLOUDS))
    files = ((name, _changed(_file(variable, name))) for variable, name in _AWS_FILES)
    return (*sorted(variables), *files)


def _changed(path: Path) -> str:
    try:
        return str(path.stat().st_mtime_ns)
    except OSError:
        return ""


def _file(variable: str, name: str) -> Path:
    return Path(os.environ.get(variable) or Path("~/.aws", name)).expanduser()


def _section(variable: str, name: str, section: str) -> dict[str, str]:
    import configparser  # noqa: PLC0415 - loads with the first store

    path = _file(variable, name)
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, configparser.Error):
        return {}
    return dict(parser[section]) if parser.has_section(section) else {}
