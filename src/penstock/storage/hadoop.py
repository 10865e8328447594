"""Translate the settings of Hadoop's clients, which Spark has as `spark.hadoop.fs.*`, to options of object stores."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.storage.uri import CLOUD, Uri

PREFIX = "spark.hadoop."
_S3 = {
    "access.key": "access_key_id",
    "secret.key": "secret_access_key",
    "session.token": "session_token",
    "endpoint": "endpoint",
    "endpoint.region": "region",
}
_GS = {
    "fs.gs.auth.service.account.json.keyfile": "service_account",
    "google.cloud.auth.service.account.json.keyfile": "service_account",
}
_TENANT = re.compile(r"https://[^/]+/([^/]+)/oauth2/.*")
_ANONYMOUS = "AnonymousAWSCredentialsProvider"


def options_of(settings: Mapping[str, str], path: str) -> dict[str, str]:
    """Return the options for a URI from Hadoop's settings, named without `spark.hadoop.`.

    >>> options_of({"fs.s3a.access.key": "AK", "fs.s3a.path.style.access": "true"}, "s3://lake/a")
    {'access_key_id': 'AK', 'virtual_hosted_style_request': 'false'}
    """
    uri = Uri.of(path)
    match CLOUD.get("" if uri is None else uri.scheme):
        case "s3":
            assert uri is not None
            return _s3(settings, uri.authority)
        case "gs":
            return {ours: settings[theirs] for theirs, ours in _GS.items() if theirs in settings}
        case "azure":
            assert uri is not None
            return _azure(settings, uri.authority.rpartition("@")[2])
    return {}


def _s3(settings: Mapping[str, str], bucket: str) -> dict[str, str]:
    """Read the settings of a bucket, which precede those of all."""
    own, common = f"fs.s3a.bucket.{bucket}.", "fs.s3a."
    given = {
        name: settings.get(own + name) or settings.get(common + name)
        for name in (*_S3, "path.style.access", "connection.ssl.enabled", "aws.credentials.provider")
    }
    found = {ours: value for theirs, ours in _S3.items() if (value := given[theirs])}
    if "endpoint" in found and "://" not in found["endpoint"]:
        scheme = "http" if given["connection.ssl.enabled"] == "false" else "https"
        found["endpoint"] = f"{scheme}://{found['endpoint']}"
    if given["path.style.access"]:
        found["virtual_hosted_style_request"] = str(given["path.style.access"] != "true").lower()
    if _ANONYMOUS in (given["aws.credentials.provider"] or ""):
        found["skip_signature"] = "true"
    return found


def _azure(settings: Mapping[str, str], host: str) -> dict[str, str]:
    """Read the settings of an account, by its host, which precede those of all."""

    def setting(name: str) -> str | None:
        return settings.get(f"{name}.{host}") or settings.get(name)

    tenant = _TENANT.fullmatch(setting("fs.azure.account.oauth2.client.endpoint") or "")
    found = {
        "account_key": setting("fs.azure.account.key"),
        "sas_key": setting("fs.azure.sas.fixed.token"),
        "client_id": setting("fs.azure.account.oauth2.client.id"),
        "client_secret": setting("fs.azure.account.oauth2.client.secret"),
        "tenant_id": None if tenant is None else tenant[1],
    }
    return {name: value for name, value in found.items() if value}
