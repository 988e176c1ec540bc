"""Roles through boto3's own sts client, by a key and by an identity provider's token, and policies of users."""

import base64
import itertools
import json
import time
import urllib.error
import urllib.request

import boto3
import botocore
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from conftest import running_server
from harness import server as harness
from harness.admin import Refused, admin
from helpers import get, refused, soon

ISSUER = "https://idp.example/realm"
PROVIDER = "idp.example/realm"

_numbers = itertools.count()


def config(**more):
    settings = {"signature_version": "v4", "retries": {"max_attempts": 1, "mode": "standard"},
                "s3": {"addressing_style": "path"}}
    return botocore.config.Config(**{**settings, **more})


def client(server, service, key, **more):
    """A client with the credentials that `admin key create` printed, or that a session has."""
    return boto3.client(
        service, endpoint_url=server.endpoint, region_name=harness.REGION,
        aws_access_key_id=key.get("access_key") or key["AccessKeyId"],
        aws_secret_access_key=key.get("secret_key") or key["SecretAccessKey"],
        aws_session_token=key.get("SessionToken"),
        config=config(**{**({"signature_version": "s3v4"} if service == "s3" else {}), **more}))


def policy(*statements):
    """A document of (effect, actions, resources)."""
    return json.dumps({"Version": "2012-10-17", "Statement": [
        {"Effect": effect, "Action": actions, "Resource": resources}
        for effect, actions, resources in statements]})


class Tenant:
    """A tenant with a key, a bucket with two objects, and a role that may read it."""

    def __init__(self, server, folder):
        self.server, self.folder = server, folder
        self.name = f"sts-{next(_numbers)}"
        self.ask("tenant", "create", self.name)
        self.key = self.ask("key", "create", "--tenant", self.name)
        self.s3 = client(server, "s3", self.key)
        self.sts = client(server, "sts", self.key)
        self.bucket = f"of-{self.name}"
        self.s3.create_bucket(Bucket=self.bucket)
        for key in ("k", "a/k"):
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=b"x")
        self.reader = policy(("Allow", ["s3:GetObject", "s3:ListBucket"],
                              [f"arn:aws:s3:::{self.bucket}", f"arn:aws:s3:::{self.bucket}/*"]))

    def ask(self, *words):
        return admin(self.server.admin_port, *words)

    def file(self, text):
        path = self.folder / f"document-{next(_numbers)}.json"
        path.write_text(text)
        return str(path)

    def role(self, name="reader", trust=None, text=None, *more):
        words = ["--policy", self.file(text or self.reader)]
        if trust:
            words += ["--trust", self.file(json.dumps(trust))]
        made = self.ask("role", "create", "--tenant", self.name, name, *words, *more)
        assert made["arn"] == f"arn:aws:iam::{self.name}:role/{name}"
        return made["arn"]

    def user(self, name, role="admin"):
        self.ask("user", "create", "--tenant", self.name, name, "--role", role)
        return self.ask("key", "create", "--tenant", self.name, "--user", name)


@pytest.fixture
def red(server, tmp_path):
    return Tenant(server, tmp_path)


@pytest.fixture
def blue(server, tmp_path):
    return Tenant(server, tmp_path)


def begin(sts, arn, **more):
    return sts.assume_role(RoleArn=arn, RoleSessionName="night", **more)


def test_a_role_is_taken_on_and_does_what_it_may(server, red):
    arn = red.role()
    reply = begin(red.sts, arn)
    assert reply["AssumedRoleUser"]["Arn"] == f"arn:aws:sts::{red.name}:assumed-role/reader/night"
    ends = reply["Credentials"]["Expiration"].timestamp() - time.time()
    assert 3600 - 120 < ends < 3600 + 120
    s3 = client(server, "s3", reply["Credentials"])
    assert get(s3, red.bucket, "k") == b"x"
    assert len(s3.list_objects_v2(Bucket=red.bucket)["Contents"]) == 2
    with refused("AccessDenied", 403):
        s3.put_object(Bucket=red.bucket, Key="new", Body=b"x")
    with refused("AccessDenied", 403):
        s3.list_buckets()
    told = client(server, "sts", reply["Credentials"]).get_caller_identity()
    assert told["Arn"] == reply["AssumedRoleUser"]["Arn"]
    assert told["UserId"] == reply["AssumedRoleUser"]["AssumedRoleId"]
    assert red.sts.get_caller_identity()["Account"] == red.name


def test_a_session_policy_limits(server, red):
    arn = red.role()
    narrow = policy(("Allow", "s3:GetObject", f"arn:aws:s3:::{red.bucket}/a/*"))
    reply = begin(red.sts, arn, Policy=narrow, DurationSeconds=900)
    assert reply["PackedPolicySize"] > 0
    s3 = client(server, "s3", reply["Credentials"])
    assert get(s3, red.bucket, "a/k") == b"x"
    with refused("AccessDenied", 403):
        s3.get_object(Bucket=red.bucket, Key="k")
    wide = begin(red.sts, arn, Policy=policy(("Allow", "s3:*", "*")))
    with refused("AccessDenied", 403):
        client(server, "s3", wide["Credentials"]).put_object(Bucket=red.bucket, Key="k", Body=b"y")


def test_sessions_sign_links_and_forms(server, red):
    arn = red.role(text=policy(("Allow", "s3:*", f"arn:aws:s3:::{red.bucket}*")))
    credentials = begin(red.sts, arn)["Credentials"]
    s3 = client(server, "s3", credentials)
    link = s3.generate_presigned_url("get_object", Params={"Bucket": red.bucket, "Key": "k"})
    assert "security-token" in link.lower()
    with urllib.request.urlopen(link, timeout=30) as reply:
        assert reply.read() == b"x"
    cut = link.replace(credentials["SessionToken"][:8], "AAAAAAAA")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(cut, timeout=30)
    assert caught.value.code == 400
    form = s3.generate_presigned_post(red.bucket, "posted")
    assert form["fields"]["x-amz-security-token"] == credentials["SessionToken"]
    boundary = "b0undary"
    parts = "".join(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
                    for name, value in {**form["fields"], "file": "hello"}.items())
    request = urllib.request.Request(
        form["url"], data=f"{parts}--{boundary}--\r\n".encode(), method="POST",
        headers={"Content-Type": f"multipart/form-data; boundary={boundary}"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        assert reply.status == 204
    assert get(red.s3, red.bucket, "posted") == b"hello"


def test_sessions_end_with_what_they_rest_on(server, red):
    key = red.user("carol", "read-only")
    arn = red.role(trust={"Statement": [{
        "Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{red.name}:user/carol"},
        "Action": "sts:AssumeRole"}]})
    with refused("AccessDenied", 403):
        begin(red.sts, arn)
    s3 = client(server, "s3", begin(client(server, "sts", key), arn)["Credentials"])
    assert get(s3, red.bucket, "k") == b"x"

    def void():
        with refused("InvalidAccessKeyId", 403):
            s3.get_object(Bucket=red.bucket, Key="k")

    for words in (("role", "--tenant", red.name, "reader"), ("user", "--tenant", red.name, "carol"),
                  ("tenant", red.name), ("key", key["access_key"])):
        kind, *which = words
        red.ask(kind, "disable", *which)
        soon(void)
        red.ask(kind, "enable", *which)
        soon(lambda: get(s3, red.bucket, "k"))
    red.ask("role", "delete", "--tenant", red.name, "reader")
    soon(void)


def test_wrong_tokens_have_their_codes(server, red):
    arn = red.role()
    one, other = (begin(red.sts, arn)["Credentials"] for _ in range(2))
    for token, code, status in (
            (None, "InvalidAccessKeyId", 403), (other["SessionToken"], "InvalidToken", 400),
            (one["SessionToken"][:-8], "InvalidToken", 400), ("token", "InvalidToken", 400)):
        with refused(code, status):
            client(server, "s3", {**one, "SessionToken": token}).get_object(Bucket=red.bucket, Key="k")
    with refused("SignatureDoesNotMatch", 403):
        client(server, "s3", {**one, "SecretAccessKey": "x" * 40}).get_object(Bucket=red.bucket, Key="k")
    for duration in (43200, 3601):
        with refused("ValidationError", 400):
            begin(red.sts, arn, DurationSeconds=duration)
    with refused("MalformedPolicyDocument", 400):
        begin(red.sts, arn, Policy="{}")
    with refused("AccessDenied", 403):
        begin(red.sts, arn + "x")
    with refused("InvalidClientTokenId", 403):
        client(server, "sts", {**red.key, "access_key": "AKIDNOBODY"}).get_caller_identity()
    with refused("SignatureDoesNotMatch", 403):
        client(server, "sts", {**red.key, "secret_key": "x" * 40}).get_caller_identity()


def test_a_role_of_another_tenant(server, red, blue):
    trust = {"Statement": [{"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{blue.name}:root"},
                            "Action": "sts:AssumeRole"}]}
    arn = red.role(trust=trust)
    s3 = client(server, "s3", begin(blue.sts, arn)["Credentials"])
    assert get(s3, red.bucket, "k") == b"x"
    with refused("AccessDenied", 403):
        s3.get_object(Bucket=blue.bucket, Key="k")
    limited = blue.user("dave", "read-only")
    with refused("AccessDenied", 403):
        begin(client(server, "sts", limited), arn)


def test_users_are_held_to_their_policy(server, red):
    s3 = client(server, "s3", red.user("carol"))
    assert get(s3, red.bucket, "k") == b"x"
    text = policy(("Allow", "s3:*", f"arn:aws:s3:::{red.bucket}/a/*"),
                  ("Deny", "s3:DeleteObject", "*"))
    red.ask("user", "policy", "put", "--tenant", red.name, "carol", red.file(text))

    def held():
        with refused("AccessDenied", 403):
            s3.get_object(Bucket=red.bucket, Key="k")

    soon(held)
    s3.put_object(Bucket=red.bucket, Key="a/new", Body=b"y")
    assert get(s3, red.bucket, "a/new") == b"y"
    with refused("AccessDenied", 403):
        s3.delete_object(Bucket=red.bucket, Key="a/new")
    assert red.ask("user", "policy", "get", "--tenant", red.name, "carol")["policy"] == text
    assert red.ask("user", "show", "--tenant", red.name, "carol")["has_policy"]
    red.ask("user", "policy", "delete", "--tenant", red.name, "carol")
    soon(lambda: get(s3, red.bucket, "k"))
    with pytest.raises(Refused) as caught:
        red.ask("user", "policy", "put", "--tenant", red.name, "carol", red.file("{}"))
    assert "invalid policy" in str(caught.value)


def test_mistakes_with_roles_are_told(red):
    red.role()

    def no(words, *asked):
        with pytest.raises(Refused) as caught:
            red.ask("role", *asked)
        assert words in str(caught.value), caught.value

    whose, good = ("--tenant", red.name), red.file(red.reader)
    no("already exists", "create", *whose, "reader", "--policy", good)
    no("can't be the name of a role", "create", *whose, "a/b", "--policy", good)
    no("invalid policy", "create", *whose, "r", "--policy", red.file("[]"))
    no("invalid trust document", "create", *whose, "r", "--policy", good, "--trust", good)
    no("900 to 43200", "create", *whose, "r", "--policy", good, "--max-session", "1m")
    no("there is no tenant nobody", "create", "--tenant", "nobody", "r", "--policy", good)
    no("there is no role", "show", *whose, "r")
    assert red.ask("role", "set", *whose, "reader", "--max-session", "2h")["max_session_seconds"] == 7200
    assert [line["role"] for line in red.ask("role", "list", *whose)] == ["reader"]


def encode(data):
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Provider:
    """An identity provider with an RSA and an elliptic key."""

    def __init__(self):
        self.rsa = rsa.generate_private_key(65537, 2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())

    def jwks(self):
        n = self.rsa.public_key().public_numbers().n
        point = self.ec.public_key().public_numbers()
        return json.dumps({"keys": [
            {"kty": "RSA", "kid": "r", "alg": "RS256", "use": "sig",
             "n": encode(n.to_bytes(256, "big")), "e": "AQAB"},
            {"kty": "EC", "kid": "e", "crv": "P-256",
             "x": encode(point.x.to_bytes(32, "big")), "y": encode(point.y.to_bytes(32, "big"))}]})

    def token(self, kid="r", alg=None, **claims):
        now = int(time.time())
        claims = {"iss": ISSUER, "sub": "job:7", "aud": "app", "iat": now, "exp": now + 600, **claims}
        alg = alg or {"r": "RS256", "e": "ES256"}[kid]
        signed = f"{encode({'alg': alg, 'kid': kid})}.{encode(claims)}"
        if alg == "none":
            return f"{signed}."
        if kid == "r":
            mark = self.rsa.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        else:
            pair = decode_dss_signature(self.ec.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
            mark = b"".join(half.to_bytes(32, "big") for half in pair)
        return f"{signed}.{encode(mark)}"


@pytest.fixture(scope="module")
def trusting(tmp_path_factory):
    """A server that takes tokens of a provider, its keys' file, and the provider."""
    folder, provider = tmp_path_factory.mktemp("oidc"), Provider()
    file = folder / "jwks.json"
    file.write_text(provider.jwks())
    settings = {"MARTLET_OIDC_ISSUER": ISSUER, "MARTLET_OIDC_AUDIENCES": "app, web",
                "MARTLET_OIDC_JWKS_FILE": str(file)}
    with running_server(settings=settings) as server:
        yield server, file, provider


def test_tokens_of_a_provider_begin_sessions(trusting, tmp_path):
    server, file, provider = trusting
    red = Tenant(server, tmp_path)
    arn = red.role(trust={"Version": "2012-10-17", "Statement": [{
        "Effect": "Allow", "Principal": {"Federated": f"arn:aws:iam::x:oidc-provider/{PROVIDER}"},
        "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": {"StringLike": {f"{PROVIDER}:sub": "job:*"},
                      "StringEquals": {f"{PROVIDER}:aud": "app"}}}]})
    anyone = boto3.client("sts", endpoint_url=server.endpoint, region_name=harness.REGION,
                          config=config(signature_version=botocore.UNSIGNED))

    def assume(token, **more):
        return anyone.assume_role_with_web_identity(
            RoleArn=arn, RoleSessionName="job", WebIdentityToken=token, **more)

    for kid in ("r", "e"):
        reply = assume(provider.token(kid), DurationSeconds=900)
        assert (reply["SubjectFromWebIdentityToken"], reply["Audience"]) == ("job:7", "app")
        assert reply["Provider"] == PROVIDER
        s3 = client(server, "s3", reply["Credentials"])
        assert get(s3, red.bucket, "k") == b"x"
        with refused("AccessDenied", 403):
            s3.put_object(Bucket=red.bucket, Key="k", Body=b"y")
    now, stranger = int(time.time()), Provider()
    for token, code, status in (
            (provider.token(sub="me"), "AccessDenied", 403),
            (provider.token(aud="web"), "AccessDenied", 403),
            (provider.token(aud="else"), "InvalidIdentityToken", 400),
            (provider.token(iss="https://else.example"), "InvalidIdentityToken", 400),
            (provider.token(exp=now - 120), "ExpiredTokenException", 400),
            (provider.token(nbf=now + 600), "IDPRejectedClaim", 403),
            (provider.token(alg="none"), "InvalidIdentityToken", 400),
            (provider.token(alg="HS256"), "InvalidIdentityToken", 400),
            (provider.token("r", alg="ES256"), "InvalidIdentityToken", 400),
            (stranger.token(), "InvalidIdentityToken", 400),
            (provider.token()[:-8], "InvalidIdentityToken", 400),
            ("no token", "InvalidIdentityToken", 400)):
        with refused(code, status):
            assume(token)
    with refused("AccessDenied", 403):
        begin(red.sts, arn)
    # The file is read again: its old keys are no more, its new ones are known.
    file.write_text(stranger.jwks())
    try:
        with refused("InvalidIdentityToken", 400):
            assume(provider.token())
        assume(stranger.token())
        file.write_text("mangled")
        with refused("IDPCommunicationError", 400):
            assume(stranger.token())
    finally:
        file.write_text(provider.jwks())


def test_roles_and_users_made_again_are_others(server, red, blue):
    """What names a role or a user means the one that there was when it was put."""
    reads = policy(("Allow", "s3:GetObject", f"arn:aws:s3:::{blue.bucket}/*"))
    arn = red.role(text=reads)
    blue.s3.put_bucket_policy(Bucket=blue.bucket, Policy=json.dumps({
        "Version": "2012-10-17", "Statement": [{
            "Effect": "Allow", "Principal": {"AWS": arn}, "Action": "s3:GetObject",
            "Resource": f"arn:aws:s3:::{blue.bucket}/*"}]}))
    s3 = client(server, "s3", begin(red.sts, arn)["Credentials"])
    soon(lambda: get(s3, blue.bucket, "k"))
    red.ask("role", "delete", "--tenant", red.name, "reader")
    assert red.role(text=reads) == arn

    def other_role():
        s3 = client(server, "s3", begin(red.sts, arn)["Credentials"])
        with refused("AccessDenied", 403):
            s3.get_object(Bucket=blue.bucket, Key="k")

    soon(other_role)
    key = red.user("carol")
    trusting = blue.role(trust={"Statement": [{
        "Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{red.name}:user/carol"},
        "Action": "sts:AssumeRole"}]})
    soon(lambda: begin(client(server, "sts", key), trusting))
    red.ask("key", "delete", key["access_key"])
    red.ask("user", "delete", "--tenant", red.name, "carol")
    other = red.user("carol")
    soon(lambda: client(server, "sts", other).get_caller_identity())

    def other_user():
        with refused("AccessDenied", 403):
            begin(client(server, "sts", other), trusting)

    soon(other_user)
