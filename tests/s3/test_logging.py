"""Access logs: where a bucket's requests are logged, the lines, and the server's own file."""

import http.client
import json
import re
import shlex
import ssl
import urllib.error
import urllib.parse
import urllib.request

import pytest
import trustme
from botocore.exceptions import ClientError

from conftest import client_for, running_server
from harness import wire
from helpers import code_of, until

FIELDS = ["owner", "bucket", "time", "ip", "requester", "request_id", "operation", "key", "uri",
          "status", "error", "sent", "size", "total", "turn_around", "referer", "agent", "version",
          "host_id", "signature", "cipher", "authentication", "host", "tls", "arn", "acl"]
LINE = re.compile(r'\[([^\]]*)\]|"([^"]*)"|(\S+)')


def read_line(line):
    fields = [next(piece for piece in found if piece) for found in LINE.findall(line)]
    assert len(fields) == len(FIELDS), line
    return dict(zip(FIELDS, fields))


@pytest.fixture(scope="module")
def log_file(tmp_path_factory):
    return tmp_path_factory.mktemp("log") / "access.log"


@pytest.fixture(scope="module")
def logged(log_file):
    settings = {"MARTLET_ACCESS_LOG": str(log_file), "MARTLET_BUCKET_LOG_INTERVAL": "300ms"}
    with running_server(settings=settings) as server:
        yield server
        assert server.stop() == 0, server.log()
        assert server.complaints() == []


@pytest.fixture(scope="module")
def client(logged):
    return client_for(logged)


_numbers = iter(range(1000))


@pytest.fixture
def source(client):
    name = f"source-{next(_numbers)}"
    client.create_bucket(Bucket=name)
    return name


@pytest.fixture
def target(client):
    name = f"target-{next(_numbers)}"
    client.create_bucket(Bucket=name)
    return name


def account(client, bucket):
    return client.get_bucket_acl(Bucket=bucket)["Owner"]["ID"]


def policy(client, source, target, prefix="log/", **changes):
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "logging.s3.amazonaws.com"},
        "Action": ["s3:PutObject"],
        "Resource": f"arn:aws:s3:::{target}/{prefix or '*'}",
        "Condition": {"ArnLike": {"aws:SourceArn": f"arn:aws:s3:::{source}"},
                      "StringEquals": {"aws:SourceAccount": account(client, source)}},
        **changes,
    }
    client.put_bucket_policy(
        Bucket=target, Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))


def put_logging(client, source, target, prefix="log/", **more):
    enabled = {"TargetBucket": target, "TargetPrefix": prefix, **more}
    client.put_bucket_logging(Bucket=source, BucketLoggingStatus={"LoggingEnabled": enabled})


def test_it_comes_back_and_an_empty_status_ends_it(client, source, target):
    assert "LoggingEnabled" not in client.get_bucket_logging(Bucket=source)
    policy(client, source, target)
    put_logging(client, source, target)
    enabled = client.get_bucket_logging(Bucket=source)["LoggingEnabled"]
    assert enabled == {"TargetBucket": target, "TargetPrefix": "log/",
                       "TargetObjectKeyFormat": {"SimplePrefix": {}}}
    format = {"PartitionedPrefix": {"PartitionDateSource": "EventTime"}}
    put_logging(client, source, target, TargetObjectKeyFormat=format)
    enabled = client.get_bucket_logging(Bucket=source)["LoggingEnabled"]
    assert enabled["TargetObjectKeyFormat"] == format
    client.put_bucket_logging(Bucket=source, BucketLoggingStatus={})
    assert "LoggingEnabled" not in client.get_bucket_logging(Bucket=source)


def test_the_target_has_to_be_there(client, source):
    assert code_of(put_logging, client, source, "nowhere-at-all") == (
        400, "InvalidTargetBucketForLogging")
    assert code_of(put_logging, client, "nowhere-at-all", source) == (404, "NoSuchBucket")
    assert code_of(client.get_bucket_logging, Bucket="nowhere-at-all") == (404, "NoSuchBucket")


def test_the_target_has_to_take_logs(client, source, target):
    denied = (403, "AccessDenied")
    assert code_of(put_logging, client, source, target) == denied
    arn = f"arn:aws:s3:::{source}"
    for changes in [
        {"Principal": {"AWS": "*"}},
        {"Principal": {"Service": "cloudtrail.amazonaws.com"}},
        {"Action": ["s3:GetObject"]},
        {"Resource": f"arn:aws:s3:::{target}/kaboom"},
        {"Condition": {"ArnLike": {"aws:SourceArn": "arn:aws:s3:::kaboom"}}},
        {"Condition": {"ArnLike": {"aws:SourceArn": arn},
                       "StringEquals": {"aws:SourceAccount": "kaboom"}}},
    ]:
        policy(client, source, target, **changes)
        assert code_of(put_logging, client, source, target) == denied, changes
    policy(client, source, target)
    put_logging(client, source, target)


def test_a_list_that_names_log_delivery_is_as_good_as_a_policy(client, source, target):
    rules = {"Rules": [{"ObjectOwnership": "BucketOwnerPreferred"}]}
    client.put_bucket_ownership_controls(Bucket=target, OwnershipControls=rules)
    assert code_of(put_logging, client, source, target) == (403, "AccessDenied")
    client.put_bucket_acl(Bucket=target, ACL="log-delivery-write")
    owner = account(client, source)
    grant = {"Grantee": {"Type": "CanonicalUser", "ID": owner}, "Permission": "READ"}
    put_logging(client, source, target, TargetGrants=[grant])
    [back] = client.get_bucket_logging(Bucket=source)["LoggingEnabled"]["TargetGrants"]
    assert (back["Grantee"]["ID"], back["Permission"]) == (owner, "READ")
    wrong = {**grant, "Permission": "WRITE_ACP"}
    assert code_of(put_logging, client, source, target, TargetGrants=[wrong]) == (
        400, "MalformedXML")


def test_formats_that_there_are_not_are_refused(client, source, target):
    policy(client, source, target)
    format = {"PartitionedPrefix": {"PartitionDateSource": "kaboom"}}
    refused = code_of(put_logging, client, source, target, TargetObjectKeyFormat=format)
    assert refused == (400, "MalformedXML")


def logs(client, target):
    keys = [it["Key"] for it in client.list_objects_v2(Bucket=target).get("Contents", [])]
    bodies = [client.get_object(Bucket=target, Key=key)["Body"].read().decode() for key in keys]
    lines = [read_line(line) for body in bodies for line in body.splitlines()]
    return keys, lines


def test_requests_become_objects_in_the_target(client, source, target):
    policy(client, source, target)
    put_logging(client, source, target)
    put = client.put_object(Bucket=source, Key="a b", Body=b"12345")
    client.get_object(Bucket=source, Key="a b", Range="bytes=1-2")["Body"].read()
    with pytest.raises(ClientError):
        client.head_object(Bucket=source, Key="missing")
    client.delete_object(Bucket=source, Key="a b")

    def ready():
        keys, lines = logs(client, target)
        lines = [line for line in lines if line["operation"] != "REST.PUT.LOGGING_STATUS"]
        return len(lines) >= 4 and (keys, lines)

    keys, lines = until(ready)
    for key in keys:
        assert re.fullmatch(r"log/\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d-[0-9A-F]{16}", key), key
    by_operation = {line["operation"]: line for line in lines}
    assert set(by_operation) == {
        "REST.PUT.OBJECT", "REST.GET.OBJECT", "REST.HEAD.OBJECT", "REST.DELETE.OBJECT"}
    owner = account(client, source)
    for line in lines:
        assert (line["owner"], line["bucket"], line["requester"]) == (owner, source, owner)
        assert (line["ip"], line["signature"], line["authentication"]) == (
            "127.0.0.1", "SigV4", "AuthHeader")
        assert re.fullmatch(r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000", line["time"])
    line = by_operation["REST.PUT.OBJECT"]
    assert line["request_id"] == put["ResponseMetadata"]["RequestId"]
    assert line["host_id"] == put["ResponseMetadata"]["HostId"]
    assert (line["key"], line["status"], line["error"], line["size"]) == ("a%20b", "200", "-", "5")
    assert line["uri"].startswith(f"PUT /{source}/a%20b") and line["uri"].endswith("HTTP/1.1")
    line = by_operation["REST.GET.OBJECT"]
    assert (line["status"], line["sent"], line["size"]) == ("206", "2", "5")
    assert "Boto3" in line["agent"]
    line = by_operation["REST.HEAD.OBJECT"]
    assert (line["status"], line["error"], line["sent"]) == ("404", "NoSuchKey", "-")
    assert by_operation["REST.DELETE.OBJECT"]["status"] == "204"


def test_each_key_of_many_that_are_deleted_has_a_line(client, source, target):
    client.put_bucket_versioning(Bucket=source, VersioningConfiguration={"Status": "Enabled"})
    policy(client, source, target)
    put_logging(client, source, target)
    version = client.put_object(Bucket=source, Key="a b", Body=b"1")["VersionId"]
    objects = [{"Key": "a b", "VersionId": version}, {"Key": "plain"},
               {"Key": "wrong", "VersionId": "none"}]
    reply = client.delete_objects(Bucket=source, Delete={"Objects": objects, "Quiet": True})
    assert [error["Key"] for error in reply["Errors"]] == ["wrong"]

    def ready():
        lines = logs(client, target)[1]
        batch = [line for line in lines if line["operation"] == "BATCH.DELETE.OBJECT"]
        whole = [line for line in lines if line["operation"] == "REST.POST.MULTI_OBJECT_DELETE"]
        return len(batch) >= 3 and whole and (batch, whole)

    batch, [whole] = until(ready)
    assert (whole["status"], whole["key"]) == ("200", "-") and "?delete" in whole["uri"]
    assert [(line["key"], line["status"]) for line in batch[:2]] == [("a%20b", "204"), ("plain", "204")]
    assert batch[0]["version"] == version and batch[1]["version"] not in ("-", version)
    assert (batch[2]["key"], batch[2]["error"]) == ("wrong", reply["Errors"][0]["Code"])
    assert batch[2]["status"][0] == "4"
    for line in batch:
        for name in ("owner", "bucket", "ip", "requester", "request_id", "host_id", "signature"):
            assert line[name] == whole[name], name
        for name in ("uri", "sent", "size", "total", "turn_around", "referer", "agent"):
            assert line[name] == "-", name


def test_a_line_says_whether_a_list_let_the_request_in(client, logged, log_file, source):
    rules = {"Rules": [{"ObjectOwnership": "ObjectWriter"}]}
    client.put_bucket_ownership_controls(Bucket=source, OwnershipControls=rules)
    client.put_object(Bucket=source, Key="open", ACL="public-read", Body=b"1")
    client.put_object(Bucket=source, Key="closed", Body=b"1")
    client.get_object(Bucket=source, Key="open")["Body"].read()
    urllib.request.urlopen(f"{logged.endpoint}/{source}/open").close()
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"{logged.endpoint}/{source}/closed")
    allowed = {"Version": "2012-10-17", "Statement": [{
        "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
        "Resource": f"arn:aws:s3:::{source}/*"}]}
    client.put_bucket_policy(Bucket=source, Policy=json.dumps(allowed))
    urllib.request.urlopen(f"{logged.endpoint}/{source}/open").close()

    def ready():
        lines = [read_line(line) for line in log_file.read_text().splitlines()]
        lines = [line for line in lines if line["bucket"] == source
                 and line["operation"] == "REST.GET.OBJECT"]
        return len(lines) >= 4 and lines

    seen = [(line["requester"] == "-", line["key"], line["status"], line["acl"]) for line in until(ready)]
    assert seen == [
        (False, "open", "200", "-"),
        (True, "open", "200", "Yes"),
        (True, "closed", "403", "-"),
        (True, "open", "200", "-"),
    ]


@pytest.mark.parametrize("version, tls, ciphers", [
    (ssl.TLSVersion.TLSv1_2, "TLSv1.2", r"ECDHE-(ECDSA|RSA)-(AES(128|256)-GCM-SHA\d+|CHACHA20-POLY1305)"),
    (ssl.TLSVersion.TLSv1_3, "TLSv1.3", r"TLS_(AES_(128|256)_GCM|CHACHA20_POLY1305)_SHA\d+"),
])
def test_a_line_names_the_cipher_of_its_connection(tmp_path, version, tls, ciphers):
    authority, log = trustme.CA(), tmp_path / "access.log"
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(key)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.maximum_version = version
    settings = {"MARTLET_ACCESS_LOG": str(log), "MARTLET_S3_TLS_CERTIFICATE": str(certificate),
                "MARTLET_S3_TLS_KEY": str(key)}
    with running_server(settings=settings) as server:
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context)
        connection.request("GET", "/nobodys/k")
        assert connection.getresponse().status in (403, 404)
        agreed = connection.sock.cipher()[0]
        connection.close()
        [line] = until(lambda: [read_line(it) for it in log.read_text().splitlines()])
        assert (line["cipher"], line["tls"]) == (agreed, tls)
        assert re.fullmatch(ciphers, agreed)
        assert server.stop() == 0, server.log()


def test_logs_of_partitions_lie_under_owner_region_bucket_and_day(client, source, target):
    policy(client, source, target, prefix="")
    format = {"PartitionedPrefix": {"PartitionDateSource": "DeliveryTime"}}
    put_logging(client, source, target, prefix="", TargetObjectKeyFormat=format)
    client.list_objects_v2(Bucket=source)
    keys, _ = until(lambda: logs(client, target)[0] and logs(client, target))
    start = re.escape(f"{account(client, source)}/us-east-1/{source}/")
    assert re.match(start + r"\d{4}/\d\d/\d\d/\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d-", keys[0]), keys


def test_a_stopping_server_delivers_what_it_has(tmp_path):
    settings = {"MARTLET_BUCKET_LOG_INTERVAL": "1h"}
    with running_server(settings=settings) as server:
        client = client_for(server)
        for name in ("source", "target"):
            client.create_bucket(Bucket=name)
        policy(client, "source", "target", prefix="")
        put_logging(client, "source", "target", prefix="")
        client.put_object(Bucket="source", Key="k", Body=b"1")
        assert server.stop() == 0, server.log()
        client = client_for(server.start())
        [_], lines = logs(client, "target")
        assert "REST.PUT.OBJECT" in [line["operation"] for line in lines]


def test_the_servers_own_log_has_every_request_and_may_be_renamed(client, logged, log_file, source):
    client.put_object(Bucket=source, Key="k", Body=b"123")
    url = client.generate_presigned_url("get_object", Params={"Bucket": source, "Key": "k"})
    with urllib.request.urlopen(url) as reply:
        assert reply.read() == b"123"

    def lines(path, **wanted):
        found = [read_line(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [it for it in found if all(it[name] == value for name, value in wanted.items())]

    [line] = until(lambda: lines(log_file, bucket=source, authentication="QueryString"))
    assert "Signature=REDACTED" in line["uri"] and (line["sent"], line["size"]) == ("3", "3")
    secrets = {"X-Amz-Security-Token": "s3cret", "x-amz-security-token": "s3cret", "X-Amz-%53ignature": "s3cret",
               "X-Amz-Server-Side-Encryption-Customer-Key": "s3cret"}
    for number, (name, value) in enumerate(secrets.items()):
        page = {"Referer": f"https://x/{source}/k?{name}={value}"}
        asked = urllib.request.Request(f"{logged.endpoint}/{source}/leak{number}?{name}={value}", headers=page)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(asked)
        [line] = until(lambda: lines(log_file, bucket=source, key=f"leak{number}"))
        assert f"{name}=REDACTED" in line["uri"] and f"{name}=REDACTED" in line["referer"], line
    assert "s3cret" not in log_file.read_text()
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(url.replace("/k?", "/other?"))
    [line] = until(lambda: lines(log_file, bucket=source, error="SignatureDoesNotMatch"))
    assert (line["status"], line["requester"]) == ("403", "-")
    aside = log_file.with_suffix(".1")
    log_file.rename(aside)
    client.list_buckets()
    [line] = until(lambda: lines(log_file, operation="REST.GET.SERVICE"))
    assert line["bucket"] == "-"
    assert lines(aside, bucket=source)


def fields_of(line):
    """How many fields a line has: what begins with a quote or a bracket ends with one."""
    return len(re.findall(r'(?:\[[^\]]*\]|"[^"]*"|[^ ]+)(?= |$)', line))


@pytest.mark.parametrize("text", [" ", "a b", '"', 'a"b c', "[x] y", "[x]y z", "'a b'", "\\", '\\" x', "it's", "`", "(a b)"])
def test_a_line_has_its_fields_whatever_is_asked_for(logged, log_file, client, source, text):
    client.put_object(Bucket=source, Key=text, Body=b"1")
    path = urllib.parse.quote(text, safe="")
    headers = {"host": logged.host, "referer": text.strip() or "-", "user-agent": text.strip() or "-"}
    wire.request(logged, "GET", f"/{source}/{path}?versionId=null&partNumber={path}", headers)
    wire.request(logged, "GET", f"/{source}?prefix={path}", headers)

    def ready():
        # The last line may still be on its way into the file.
        whole = log_file.read_text().rpartition("\n")[0]
        lines = [line for line in whole.splitlines() if f" {source} " in line]
        return len(lines) >= 4 and lines

    for line in until(ready):
        assert fields_of(line) == len(FIELDS), line
        assert len(shlex.split(line.replace("[", '"').replace("]", '"'))) == len(FIELDS), line
