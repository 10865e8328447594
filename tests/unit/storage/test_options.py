"""Where options and keys come from, and what paths mean: without any store."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as pk
from penstock.storage import cloud
from penstock.storage.access import Access
from penstock.storage.filesystems import options_of
from penstock.storage.options import for_kind, pairs_of, with_profile
from penstock.storage.uri import Uri, absolute, resolved
from penstock.storage.webhdfs import WebHdfs


@pytest.fixture(autouse=True)
def no_environment(monkeypatch, tmp_path):
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_PROFILE",
        "DATABRICKS_RUNTIME_VERSION",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"key": "a", "secret": "b", "endpoint_url": "http://h"},
            {"access_key_id": "a", "secret_access_key": "b", "endpoint": "http://h", "allow_http": "true"},
        ),
        (
            {"AWS_ACCESS_KEY_ID": "a", "aws_endpoint_url": "https://h"},
            {"access_key_id": "a", "endpoint": "https://h"},
        ),
        ({"anon": True}, {"skip_signature": "true"}),
        ({}, {}),
    ],
)
def test_options_have_the_names_of_object_store_whatever_their_dialect(given, expected):
    assert for_kind(pairs_of(given), "s3") == expected


@pytest.mark.parametrize("junk", [3, "region", {3: "x"}, {"key": None}, {"key": ["hunter2"]}, {"": "x"}])
def test_options_that_are_none_are_refused_without_their_values(junk):
    with pytest.raises(pk.EngineError) as raised:
        Access.of(junk, None)
    assert "hunter2" not in str(raised.value)


def test_options_and_a_file_system_exclude_each_other():
    with pytest.raises(pk.EngineError, match="not both"):
        Access.of({"key": "a"}, object())
    with pytest.raises(pk.EngineError, match="not a object"):
        Access.of(None, object())


def test_an_unknown_option_is_named_without_its_value():
    with pytest.raises(pk.EngineError, match="no option 'acess_key'") as raised:
        Access.of({"acess_key": "hunter2"}, None).size("s3://lake/a")
    assert "hunter2" not in str(raised.value)
    with pytest.raises(pk.EngineError, match="max_retries is a whole number"):
        Access.of({"max_retries": "many"}, None).size("s3://lake/a")


def test_a_profile_gives_keys_and_region_only_where_nothing_else_does(monkeypatch, tmp_path):
    Path(tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id=d\naws_secret_access_key=e%f\n[dev]\naws_access_key_id=x\naws_session_token=t\n"
    )
    Path(tmp_path / "config").write_text("[default]\nregion=eu-west-1\n[profile dev]\nregion=eu-north-1\n")
    assert with_profile({}) == {"access_key_id": "d", "secret_access_key": "e%f", "region": "eu-west-1"}
    assert with_profile({"skip_signature": "true", "region": "r"}) == {
        "skip_signature": "true",
        "region": "r",
    }
    monkeypatch.setenv("AWS_PROFILE", "dev")
    assert with_profile({}) == {"access_key_id": "x", "session_token": "t", "region": "eu-north-1"}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "environment")
    assert with_profile({}) == {"region": "eu-north-1"}


def test_a_profile_that_changes_opens_another_store(tmp_path):
    access = Access()
    first = access._at("s3://lake/a")[0]
    assert access._at("s3://lake/b")[0] is first
    Path(tmp_path / "credentials").write_text("[default]\naws_access_key_id=d\naws_secret_access_key=e\n")
    assert access._at("s3://lake/a")[0] is not first
    assert isinstance(first, cloud.CloudStore)


HADOOP = {
    "fs.s3a.access.key": "all",
    "fs.s3a.bucket.lake.access.key": "own",
    "fs.s3a.endpoint": "minio:9000",
    "fs.s3a.connection.ssl.enabled": "false",
    "fs.s3a.path.style.access": "true",
    "fs.azure.account.key.a.dfs.core.windows.net": "azure-key",
    "fs.azure.account.oauth2.client.endpoint.b.dfs.core.windows.net": "https://login.microsoftonline.com/TENANT/oauth2/token",
    "fs.azure.account.oauth2.client.id.b.dfs.core.windows.net": "id",
    "fs.gs.auth.service.account.json.keyfile": "/key.json",
    "fs.s3a.bucket.open.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider",
}
S3 = {"endpoint": "http://minio:9000", "virtual_hosted_style_request": "false"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3a://lake/x", {"access_key_id": "own", **S3}),
        ("s3://other/x", {"access_key_id": "all", **S3}),
        ("s3://open/x", {"access_key_id": "all", "skip_signature": "true", **S3}),
        ("abfss://c@a.dfs.core.windows.net/x", {"account_key": "azure-key"}),
        ("abfss://c@b.dfs.core.windows.net/x", {"client_id": "id", "tenant_id": "TENANT"}),
        ("gs://lake/x", {"service_account": "/key.json"}),
        ("hdfs://node/x", {}),
        ("/local/x", {}),
    ],
)
def test_settings_of_hadoop_are_translated_and_those_of_a_bucket_come_first(path, expected):
    assert options_of(HADOOP, path) == expected


def test_dbfs_is_a_mounted_folder_on_databricks_and_refused_elsewhere(monkeypatch):
    with pytest.raises(pk.UnsupportedError, match="write the location behind it"):
        resolved("dbfs:/lake/a.parquet")
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert resolved("dbfs:/lake/a.parquet") == "/dbfs/lake/a.parquet"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("file://host/a", "another machine"),
        ("http://host/a", "there is no reader of http://"),
        ("s3:///a", "names no bucket"),
        ("s3://k:s@b/a", "holds credentials"),
        ("abfss://c:s@b/a", "holds credentials"),
    ],
)
def test_a_uri_that_cannot_be_read_says_why(path, said):
    with pytest.raises(pk.PenstockError, match=said):
        resolved(path)


@pytest.mark.parametrize("path", ["s3:a.parquet", "a:b/c.csv", "events/*.csv", "/data/x:/y", "C:/data"])
def test_what_is_no_uri_is_a_local_path(path):
    assert resolved(path) == path
    assert absolute(path).endswith(path)


def test_hadoop_without_its_library_says_what_is_missing():
    with pytest.raises(pk.PenstockError, match="libhdfs"):
        pk.scan("viewfs://lake/a.parquet", time="t")
    with pytest.raises(pk.PenstockError, match="needs the HTTP address of a name node"):
        pk.scan("hdfs:///lake/a.parquet", time="t")


@pytest.mark.parametrize(
    ("uri", "options", "nodes"),
    [
        ("hdfs://h:8020/a", {}, ("http://h:9870",)),
        ("webhdfs://h:50070/a", {}, ("http://h:50070",)),
        ("swebhdfs://h/a", {}, ("https://h:9871",)),
        ("hdfs://lake/a", {"webhdfs": "http://a:1, https://b:2/"}, ("http://a:1", "https://b:2")),
    ],
)
def test_name_nodes_are_those_of_the_options_or_of_the_uri(uri, options, nodes):
    parsed = Uri.of(uri)
    assert WebHdfs.of(parsed.scheme, parsed.authority, pairs_of(options)).nodes == nodes


@pytest.mark.parametrize(
    "options",
    [{"webhdfs": "ftp://h"}, {"webhdfs": "http://me:hunter2@h"}, {"webhdfs": ","}, {"region": "x"}],
)
def test_options_of_hdfs_are_checked_without_their_values(options):
    with pytest.raises(pk.PenstockError, match="webhdfs") as raised:
        WebHdfs.of("hdfs", "h", pairs_of(options))
    assert "hunter2" not in str(raised.value)


def test_a_token_is_in_no_text_of_a_store():
    assert "hunter2" not in repr(WebHdfs.of("hdfs", "h", pairs_of({"delegation": "hunter2"})))


def test_addresses_of_name_nodes_come_from_sparks_configuration():
    settings = {"dfs.http.policy": "HTTPS_ONLY", "dfs.namenode.https-address": "h:9871"}
    assert options_of(settings, "hdfs://h:8020/a") == {"webhdfs": "https://h:9871"}
    assert options_of({}, "hdfs://h:8020/a") == {}
