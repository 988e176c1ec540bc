"""Who hears of changes to objects: rules of buckets, what targets are told, and that it reaches them."""

import http.server
import json
import ssl
import threading

import pytest
import trustme
from botocore.exceptions import ClientError

from conftest import client_for, running_server
from helpers import code_of, until

HOOK = "arn:martlet:sqs:::hook"
FILE = "arn:aws:sns:us-east-1:123456789012:file"


class Hook:
    """An HTTP server that takes what is POSTed to it, or refuses it while told to."""

    def __init__(self, certificate=None):
        hook = self
        self.messages, self.refuses = [], False
        # Bodies in which this stands are never taken.
        self.never = None

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                is_bad = hook.never is not None and hook.never in body
                if not hook.refuses and not is_bad:
                    assert self.headers["content-type"] == "application/json"
                    hook.messages.append(json.loads(body))
                self.send_response(503 if hook.refuses else 400 if is_bad else 200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.scheme = "https" if certificate else "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate.configure_cert(context)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.server.server_port}/events"

    def records(self, bucket):
        """The records about a bucket so far."""
        records = [record for message in self.messages for record in message.get("Records", [])]
        return [record for record in records if record["s3"]["bucket"]["name"] == bucket]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture(scope="module")
def hook():
    hook = Hook()
    yield hook
    hook.close()


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    return tmp_path_factory.mktemp("events") / "queue.jsonl"


@pytest.fixture(scope="module")
def told(hook, queue):
    settings = {"MARTLET_NOTIFICATIONS": f"hook={hook.url},file={queue}"}
    with running_server(settings=settings) as server:
        yield server
        assert server.stop() == 0, server.log()


@pytest.fixture(scope="module")
def client(told):
    return client_for(told)


_numbers = iter(range(1000))


@pytest.fixture
def heard(client):
    name = f"heard-{next(_numbers)}"
    client.create_bucket(Bucket=name)
    return name


def rule(events, arn=HOOK, **more):
    ends = [{"Name": name, "Value": more.pop(name)} for name in ("prefix", "suffix") if name in more]
    if ends:
        more["Filter"] = {"Key": {"FilterRules": ends}}
    return {"QueueArn": arn, "Events": events, **more}


def put_rules(client, bucket, *queues, **more):
    configuration = {"QueueConfigurations": list(queues)} if queues else {}
    client.put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={**configuration, **more})


def get_rules(client, bucket):
    rules = client.get_bucket_notification_configuration(Bucket=bucket)
    del rules["ResponseMetadata"]
    return rules


def test_rules_come_back_and_an_empty_document_clears_them(client, heard):
    assert get_rules(client, heard) == {}
    named = rule(["s3:ObjectCreated:*"], prefix="images/", suffix=".jpg", Id="first")
    topic = {"TopicArn": FILE, "Events": ["s3:ObjectRemoved:Delete"]}
    function = {"LambdaFunctionArn": "arn:aws:lambda:us-east-1:1:function:hook",
                "Events": ["s3:LifecycleExpiration:*", "s3:ObjectAcl:Put"]}
    put_rules(client, heard, named, TopicConfigurations=[topic],
              LambdaFunctionConfigurations=[function])
    rules = get_rules(client, heard)
    ends = [{"Name": "Prefix", "Value": "images/"}, {"Name": "Suffix", "Value": ".jpg"}]
    assert rules["QueueConfigurations"] == [{**named, "Filter": {"Key": {"FilterRules": ends}}}]
    [back] = rules["TopicConfigurations"]
    assert back.pop("Id") and back == topic
    [back] = rules["LambdaFunctionConfigurations"]
    assert back.pop("Id") and back == function
    put_rules(client, heard)
    assert get_rules(client, heard) == {}


@pytest.mark.parametrize("wrong", [
    rule(["s3:ObjectCreated:Nothing"]),
    rule(["s3:*"]),
    rule(["s3:ObjectCreated:*"], arn="arn:martlet:sqs:::nobody"),
    rule(["s3:ObjectCreated:*"], arn="arn:aws:sqs:eu-west-1:1:hook"),
    rule(["s3:ObjectCreated:*"], arn="arn:martlet:sns:::hook"),
    rule(["s3:ObjectCreated:*"], arn="hook"),
    rule(["s3:ObjectCreated:*"], Filter={"Key": {"FilterRules": [{"Name": "x", "Value": "a"}]}}),
    rule(["s3:ObjectCreated:*"], prefix="x" * 1025),
])
def test_what_makes_no_sense_is_refused(client, heard, wrong):
    assert code_of(put_rules, client, heard, wrong) == (400, "InvalidArgument")
    assert get_rules(client, heard) == {}


def test_rules_that_overlap_are_refused(client, heard):
    everything = ["s3:ObjectCreated:*"]
    for one, other in [
        (rule(everything), rule(["s3:ObjectCreated:Put"], arn="arn:martlet:sqs:::file")),
        (rule(everything, prefix="a/"), rule(everything, prefix="a/b/")),
        (rule(everything, suffix=".jpg"), rule(everything, prefix="x")),
        (rule(everything, Id="same"), rule(["s3:ObjectRemoved:*"], Id="same")),
    ]:
        assert code_of(put_rules, client, heard, one, other) == (400, "InvalidArgument")
    put_rules(client, heard, rule(everything, prefix="a/"), rule(everything, prefix="b/"))
    assert len(get_rules(client, heard)["QueueConfigurations"]) == 2


def test_a_bucket_that_is_not_there_has_no_rules(client):
    assert code_of(get_rules, client, "nowhere-at-all") == (404, "NoSuchBucket")
    assert code_of(put_rules, client, "nowhere-at-all", rule(["s3:ObjectCreated:*"])) == (
        404, "NoSuchBucket")


def test_without_targets_every_rule_names_nobody(s3):
    s3.create_bucket(Bucket="unheard")
    assert code_of(put_rules, s3, "unheard", rule(["s3:ObjectCreated:*"])) == (
        400, "InvalidArgument")
    s3.delete_bucket(Bucket="unheard")


def test_a_target_is_told_when_rules_begin_to_name_it(client, hook, heard):
    def tests():
        return [it for it in hook.messages if it.get("Bucket") == heard]

    put_rules(client, heard, rule(["s3:ObjectCreated:*"]))
    [message] = until(tests)
    assert (message["Event"], message["Service"]) == ("s3:TestEvent", "Amazon S3")
    client.put_bucket_notification_configuration(
        Bucket=heard, SkipDestinationValidation=True,
        NotificationConfiguration={"QueueConfigurations": [rule(["s3:ObjectRemoved:*"])]})
    client.delete_object(Bucket=heard, Key="x")
    client.put_object(Bucket=heard, Key="x")
    client.delete_object(Bucket=heard, Key="x")
    until(lambda: hook.records(heard))
    assert len(tests()) == 1


def test_a_record_says_what_s3_says(client, hook, heard):
    put_rules(client, heard, rule(["s3:ObjectCreated:*"], Id="mine"))
    reply = client.put_object(Bucket=heard, Key="a b/ü+.txt", Body=b"12345")
    [record] = until(lambda: hook.records(heard))
    assert record["eventVersion"].startswith("2.")
    assert (record["eventSource"], record["awsRegion"]) == ("aws:s3", "us-east-1")
    assert record["eventName"] == "ObjectCreated:Put"
    assert record["eventTime"].endswith("Z")
    assert record["userIdentity"]["principalId"]
    assert record["requestParameters"]["sourceIPAddress"] == "127.0.0.1"
    metadata = reply["ResponseMetadata"]
    assert record["responseElements"] == {
        "x-amz-request-id": metadata["RequestId"], "x-amz-id-2": metadata["HostId"]}
    s3 = record["s3"]
    assert (s3["s3SchemaVersion"], s3["configurationId"]) == ("1.0", "mine")
    assert s3["bucket"]["arn"] == f"arn:aws:s3:::{heard}"
    owner = client.get_bucket_acl(Bucket=heard)["Owner"]["ID"]
    assert s3["bucket"]["ownerIdentity"]["principalId"] == owner
    sequencer = s3["object"].pop("sequencer")
    assert int(sequencer, 16) > 0
    assert s3["object"] == {
        "key": "a+b/%C3%BC%2B.txt", "size": 5, "eTag": reply["ETag"].strip('"')}


def test_each_change_has_its_event(client, hook, heard):
    put_rules(client, heard, rule(["s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:ObjectTagging:*"]))
    client.put_object(Bucket=heard, Key="one", Body=b"1")
    client.copy_object(Bucket=heard, Key="two", CopySource=f"{heard}/one")
    upload = client.create_multipart_upload(Bucket=heard, Key="three")["UploadId"]
    part = client.upload_part(Bucket=heard, Key="three", UploadId=upload, PartNumber=1, Body=b"123")
    complete = {"Bucket": heard, "Key": "three", "UploadId": upload,
                "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}}
    client.complete_multipart_upload(**complete)
    tags = {"TagSet": [{"Key": "a", "Value": "b"}]}
    client.put_object_tagging(Bucket=heard, Key="one", Tagging=tags)
    client.delete_object_tagging(Bucket=heard, Key="one")
    client.delete_objects(Bucket=heard, Delete={"Objects": [{"Key": "one"}, {"Key": "two"}], "Quiet": True})
    client.get_object(Bucket=heard, Key="three")
    client.delete_object(Bucket=heard, Key="three")
    # The repetition succeeds, and there is no object to announce.
    client.complete_multipart_upload(**complete)
    client.put_object(Bucket=heard, Key="last", Body=b"4")
    with pytest.raises(ClientError):
        client.put_object(Bucket=heard, Key="no", Body=b"1", IfMatch='"0"')
    records = until(lambda: len(hook.records(heard)) >= 9 and hook.records(heard))
    seen = [(it["eventName"], it["s3"]["object"]["key"]) for it in records]
    assert seen == [
        ("ObjectCreated:Put", "one"),
        ("ObjectCreated:Copy", "two"),
        ("ObjectCreated:CompleteMultipartUpload", "three"),
        ("ObjectTagging:Put", "one"),
        ("ObjectTagging:Delete", "one"),
        ("ObjectRemoved:Delete", "one"),
        ("ObjectRemoved:Delete", "two"),
        ("ObjectRemoved:Delete", "three"),
        ("ObjectCreated:Put", "last"),
    ]
    sizes = [it["s3"]["object"].get("size") for it in records]
    assert sizes[:3] == [1, 1, 3] and sizes[5:] == [None] * 3 + [1]
    ones = [it["s3"]["object"]["sequencer"] for it in records if it["s3"]["object"]["key"] == "one"]
    assert ones == sorted(ones) and len(set(ones)) == 4


def test_versions_are_named_and_markers_told_from_deletes(client, hook, heard):
    client.put_bucket_versioning(Bucket=heard, VersioningConfiguration={"Status": "Enabled"})
    put_rules(client, heard, rule(["s3:ObjectCreated:Put", "s3:ObjectRemoved:DeleteMarkerCreated"]),
              rule(["s3:ObjectRemoved:Delete"], prefix="k"))
    version = client.put_object(Bucket=heard, Key="k", Body=b"1")["VersionId"]
    marker = client.delete_object(Bucket=heard, Key="k")["VersionId"]
    client.delete_object(Bucket=heard, Key="k", VersionId=marker)
    client.delete_object(Bucket=heard, Key="k", VersionId=version)
    records = until(lambda: len(hook.records(heard)) >= 4 and hook.records(heard))
    seen = [(it["eventName"], it["s3"]["object"]["versionId"]) for it in records]
    assert seen == [
        ("ObjectCreated:Put", version),
        ("ObjectRemoved:DeleteMarkerCreated", marker),
        ("ObjectRemoved:Delete", marker),
        ("ObjectRemoved:Delete", version),
    ]


def test_only_keys_that_are_meant_are_told_of_and_each_target_hears_its_own(
        client, hook, queue, heard):
    put_rules(client, heard, rule(["s3:ObjectCreated:*"], prefix="in/", suffix=".jpg"),
              TopicConfigurations=[{"TopicArn": FILE, "Events": ["s3:ObjectCreated:*"],
                                    "Filter": {"Key": {"FilterRules": [
                                        {"Name": "prefix", "Value": "out/"}]}}}])
    for key in ["in/a.txt", "a.jpg", "out/a.jpg", "in/a.jpg"]:
        client.put_object(Bucket=heard, Key=key)
    records = until(lambda: hook.records(heard))
    assert [it["s3"]["object"]["key"] for it in records] == ["in/a.jpg"]

    def in_file():
        lines = queue.read_text().splitlines() if queue.exists() else []
        messages = [json.loads(line) for line in lines]
        records = [it for message in messages for it in message.get("Records", [])]
        return [it["s3"]["object"]["key"] for it in records if it["s3"]["bucket"]["name"] == heard]

    assert until(in_file) == ["out/a.jpg"]


def test_an_event_waits_for_its_target_also_through_a_restart(tmp_path):
    hook = Hook()
    hook.refuses = True
    try:
        with running_server(settings={"MARTLET_NOTIFICATIONS": f"hook={hook.url}"}) as server:
            client = client_for(server)
            client.create_bucket(Bucket="patient")
            put_rules(client, "patient", rule(["s3:ObjectCreated:*"]))
            for at in range(5):
                client.put_object(Bucket="patient", Key=f"k{at}")
            until(lambda: server.metric("martlet_event_failures_total"))
            assert server.stop() == 0, server.log()
            hook.refuses = False
            server.start()
            records = until(lambda: len(hook.records("patient")) >= 5 and hook.records("patient"))
            keys = [it["s3"]["object"]["key"] for it in records]
            assert keys == [f"k{at}" for at in range(5)]
            until(lambda: server.metric("martlet_event_waiting_bytes") == 0)
            assert server.metric("martlet_event_messages_lost_total") == 0
    finally:
        hook.close()


def test_a_webhook_is_spoken_to_over_tls(tmp_path):
    authority, bundle = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    hook = Hook(authority.issue_cert("127.0.0.1"))
    settings = {"MARTLET_NOTIFICATIONS": f"hook={hook.url}", "SSL_CERT_FILE": str(bundle)}
    try:
        with running_server(settings=settings) as server:
            client = client_for(server)
            client.create_bucket(Bucket="sealed")
            put_rules(client, "sealed", rule(["s3:ObjectCreated:*"]))
            client.put_object(Bucket="sealed", Key="k")
            [record] = until(lambda: hook.records("sealed"))
            assert record["s3"]["object"]["key"] == "k"
            assert server.stop() == 0, server.log()
            assert server.complaints() == []
    finally:
        hook.close()


def test_a_message_that_is_refused_holds_up_nobody_and_can_be_sent_again(tmp_path):
    hook = Hook()
    hook.never = b"poison"
    settings = {"MARTLET_NOTIFICATIONS": f"hook={hook.url}", "MARTLET_MAX_NOTIFICATION_REFUSALS": "3"}
    try:
        with running_server(settings=settings) as server:
            client = client_for(server)
            client.create_bucket(Bucket="mixed")
            put_rules(client, "mixed", rule(["s3:ObjectCreated:*"]))
            for key in ("poison", "good"):
                client.put_object(Bucket="mixed", Key=key)
            keys = lambda: [it["s3"]["object"]["key"] for it in hook.records("mixed")]
            until(lambda: keys() == ["good"])
            assert server.metric("martlet_event_messages_refused_total") == 1
            assert server.metric("martlet_event_messages_lost_total") == 0
            spool = server.folder / "data/events/hook"
            [line] = (spool / "refused.jsonl").read_text().splitlines()
            assert json.loads(line)["Records"][0]["s3"]["object"]["key"] == "poison"
            hook.never = None
            (spool / "refused.jsonl").rename(spool / "again.jsonl")
            until(lambda: keys() == ["good", "poison"])
            until(lambda: server.metric("martlet_event_refused_bytes") == 0)
            assert [line for line in server.complaints() if "set an event aside" not in line
                    and "could not deliver events" not in line] == []
            assert server.stop() == 0, server.log()
    finally:
        hook.close()


def test_a_target_that_is_away_slows_no_request(tmp_path):
    settings = {"MARTLET_NOTIFICATIONS": "hook=http://127.0.0.1:1/events",
                "MARTLET_NOTIFICATION_SPOOL": "4KiB"}
    with running_server(settings=settings) as server:
        client = client_for(server)
        client.create_bucket(Bucket="alone")
        put_rules(client, "alone", rule(["s3:ObjectCreated:*"]))
        for at in range(30):
            client.put_object(Bucket="alone", Key=f"k{at}")
        until(lambda: server.metric("martlet_event_messages_lost_total"))
        assert server.metric("martlet_event_waiting_bytes") <= 4096
        assert server.stop() == 0, server.log()


@pytest.fixture(scope="module")
def hasty(hook):
    """A client of a server whose days are short: what is due goes within a few seconds."""
    settings = {"MARTLET_NOTIFICATIONS": f"hook={hook.url}", "MARTLET_LIFECYCLE_DAY_SECONDS": "1"}
    with running_server(settings=settings) as server:
        yield client_for(server)
        assert server.stop() == 0, server.log()
        assert server.complaints() == []


def expire(client, bucket, **what):
    rules = [{"ID": "all", "Status": "Enabled", "Filter": {"Prefix": "old/"}, **what}]
    client.put_bucket_lifecycle_configuration(
        Bucket=bucket, LifecycleConfiguration={"Rules": rules})


def test_what_rules_take_is_told_as_s3_tells_it(hasty, hook):
    hasty.create_bucket(Bucket="taken")
    put_rules(hasty, "taken", rule(["s3:LifecycleExpiration:*"], Id="mine"))
    for key in ("old/a b", "new"):
        hasty.put_object(Bucket="taken", Key=key, Body=b"1")
    hasty.create_multipart_upload(Bucket="taken", Key="old/upload")
    expire(hasty, "taken", Expiration={"Days": 1},
           AbortIncompleteMultipartUpload={"DaysAfterInitiation": 1})
    [record] = until(lambda: hook.records("taken"))
    until(lambda: "Uploads" not in hasty.list_multipart_uploads(Bucket="taken"))
    assert record["eventName"] == "LifecycleExpiration:Delete"
    assert (record["eventVersion"], record["eventSource"]) == ("2.3", "aws:s3")
    assert record["userIdentity"] == {"principalId": "s3.amazonaws.com"}
    assert record["requestParameters"] == {"sourceIPAddress": "s3.amazonaws.com"}
    assert all(record["responseElements"][name] for name in ("x-amz-request-id", "x-amz-id-2"))
    assert record["s3"]["configurationId"] == "mine"
    assert record["s3"]["object"].keys() == {"key", "sequencer"}
    assert record["s3"]["object"]["key"] == "old/a+b"
    # Of an upload that was given up S3 tells nothing.
    hasty.put_object(Bucket="taken", Key="old/later", Body=b"1")
    records = until(lambda: len(hook.records("taken")) >= 2 and hook.records("taken"))
    assert [it["s3"]["object"]["key"] for it in records] == ["old/a+b", "old/later"]


def test_markers_that_rules_make_are_told_from_versions_that_they_remove(hasty, hook):
    hasty.create_bucket(Bucket="marked")
    hasty.put_bucket_versioning(Bucket="marked", VersioningConfiguration={"Status": "Enabled"})
    put_rules(hasty, "marked", rule(["s3:LifecycleExpiration:DeleteMarkerCreated"]),
              rule(["s3:LifecycleExpiration:Delete"], prefix="old/"),
              rule(["s3:ObjectRemoved:*"], suffix="k"))
    version = hasty.put_object(Bucket="marked", Key="old/k", Body=b"1")["VersionId"]
    expire(hasty, "marked", Expiration={"Days": 1}, NoncurrentVersionExpiration={"NoncurrentDays": 1})
    records = until(lambda: len(hook.records("marked")) >= 3 and hook.records("marked"))
    seen = [(it["eventName"], it["s3"]["object"]["versionId"]) for it in records]
    marker = seen[0][1]
    assert marker != version and seen == [
        ("LifecycleExpiration:DeleteMarkerCreated", marker),
        ("LifecycleExpiration:Delete", version),
        ("LifecycleExpiration:Delete", marker),
    ]
    sequencers = [it["s3"]["object"]["sequencer"] for it in records]
    assert sequencers == sorted(sequencers) and len(set(sequencers)) == 3
