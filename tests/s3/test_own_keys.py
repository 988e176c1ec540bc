"""Own keys of users through boto3's own iam client: made, listed and deleted, as the user's policy allows."""

import json
import time

import boto3

from harness import server as harness
from harness.admin import admin
from helpers import refused


def client(server, service, key):
    return boto3.client(service, endpoint_url=server.endpoint, region_name=harness.REGION,
                        aws_access_key_id=key["access_key"], aws_secret_access_key=key["secret_key"])


def no(call, code, status, **arguments):
    with refused(code, status):
        call(**arguments)


def test_a_user_keeps_own_keys(server, tmp_path):
    port = server.admin_port
    admin(port, "tenant", "create", "own-keys")
    for name in ("alice", "bob"):
        admin(port, "user", "create", "--tenant", "own-keys", name, "--role", "read-only")
    keys = {name: admin(port, "key", "create", "--tenant", "own-keys", "--user", name) for name in ("alice", "bob")}
    iam = client(server, "iam", keys["alice"])
    no(iam.list_access_keys, "AccessDenied", 403)
    policy = tmp_path / "policy.json"

    def allow(user, action):
        policy.write_text(json.dumps({"Statement": [
            {"Effect": "Allow", "Action": action, "Resource": f"arn:aws:iam::own-keys:user/{user}"}]}))
        admin(port, "user", "policy", "put", "--tenant", "own-keys", user, str(policy))

    for name in ("alice", "bob"):
        allow(name, "iam:*")
    time.sleep(1.5)
    made = iam.create_access_key()["AccessKey"]
    assert (made["UserName"], made["Status"]) == ("alice", "Active")
    listed = {key["AccessKeyId"] for key in iam.list_access_keys()["AccessKeyMetadata"]}
    assert listed == {keys["alice"]["access_key"], made["AccessKeyId"]}
    fresh = {"access_key": made["AccessKeyId"], "secret_key": made["SecretAccessKey"]}
    assert client(server, "sts", fresh).get_caller_identity()["Arn"].endswith(":user/alice")
    bob = client(server, "iam", keys["bob"])
    no(bob.delete_access_key, "NoSuchEntity", 404, AccessKeyId=made["AccessKeyId"])
    no(bob.create_access_key, "AccessDenied", 403, UserName="alice")
    no(iam.delete_access_key, "LimitExceeded", 409, AccessKeyId=keys["alice"]["access_key"])
    no(iam.update_access_key, "InvalidAction", 400, AccessKeyId=made["AccessKeyId"], Status="Inactive")
    iam.delete_access_key(AccessKeyId=made["AccessKeyId"])
    tenant = client(server, "iam", admin(port, "key", "create", "--tenant", "own-keys"))
    no(tenant.create_access_key, "AccessDenied", 403)
    allow("alice", "iam:ListAccessKeys")
    time.sleep(1.5)
    assert len(iam.list_access_keys()["AccessKeyMetadata"]) == 1
    no(iam.create_access_key, "AccessDenied", 403)
