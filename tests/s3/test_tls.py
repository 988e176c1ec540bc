"""TLS at the S3 port: HTTP/1.1 and HTTP/2, certificates that are renewed, clients that go silent."""

import asyncio
import json
import os
import socket
import ssl
import time

import boto3
import botocore
import httpx
import pytest
import trustme
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from conftest import SLOW_SETTINGS, running_server
from harness import server as harness

MIB = 1 << 20
MARGIN_S = 40
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


class Papers:
    """An authority, and the files that the server is given."""

    def __init__(self, folder):
        self.authority = trustme.CA()
        self.bundle = folder / "ca.pem"
        self.certificate, self.key = folder / "cert.pem", folder / "key.pem"
        self.authority.cert_pem.write_to_path(self.bundle)
        self.renew()

    def renew(self):
        """A new certificate and its key, one after the other; the certificate as PEM."""
        issued = self.authority.issue_cert("localhost", "*.localhost", "127.0.0.1")
        self.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(self.key)
        return issued.cert_chain_pems[0].bytes().decode()

    def context(self):
        return ssl.create_default_context(cafile=self.bundle)


class Secure:
    """A server that speaks TLS, and ways to ask it."""

    def __init__(self, server, papers):
        self.server, self.papers = server, papers
        self.endpoint = f"https://{server.host}"

    def boto3(self):
        return boto3.client(
            "s3", endpoint_url=self.endpoint, region_name=harness.REGION, verify=str(self.papers.bundle),
            aws_access_key_id=harness.ACCESS_KEY, aws_secret_access_key=harness.SECRET_KEY,
            config=botocore.config.Config(signature_version="s3v4", retries={"max_attempts": 1},
                                          s3={"addressing_style": "path"}))

    def http2(self):
        return httpx.AsyncClient(http1=False, http2=True, verify=self.papers.context(), timeout=60)

    async def request(self, client, method, path, content=b""):
        """A signed request."""
        request = AWSRequest(method=method, url=self.endpoint + path, data=content)
        request.headers["x-amz-content-sha256"] = "UNSIGNED-PAYLOAD"
        credentials = Credentials(harness.ACCESS_KEY, harness.SECRET_KEY)
        SigV4Auth(credentials, "s3", harness.REGION).add_auth(request)
        return await client.request(method, request.url, headers=dict(request.headers), content=content)

    def connect(self):
        """A bare connection that has agreed on HTTP/2."""
        context = self.papers.context()
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection(self.server.address, timeout=MARGIN_S)
        secured = context.wrap_socket(plain, server_hostname="localhost")
        assert secured.selected_alpn_protocol() == "h2"
        return secured


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    papers = Papers(tmp_path_factory.mktemp("tls"))
    flags = ["--s3-tls-certificate", str(papers.certificate), "--s3-tls-key", str(papers.key)]
    with running_server(settings=SLOW_SETTINGS, flags=flags) as server:
        secure = Secure(server, papers)
        secure.boto3().create_bucket(Bucket="tls")
        yield secure
        assert server.stop() == 0
        # But for the key that could not be used.
        assert [line for line in server.complaints() if "keeping the old certificate" not in line] == []


def ends(connection):
    """The other end closes it, sooner or later."""
    begun = time.monotonic()
    while connection.recv(4096):
        assert time.monotonic() - begun < MARGIN_S


def test_sdks_over_http1(secure):
    s3, body = secure.boto3(), os.urandom(9 * MIB)
    s3.put_object(Bucket="tls", Key="one", Body=body)
    assert s3.get_object(Bucket="tls", Key="one")["Body"].read() == body
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "tls", "Key": "one"})
    assert url.startswith("https://")
    assert httpx.get(url, verify=secure.papers.context()).content == body


def test_many_requests_on_one_connection_of_http2(secure):
    bodies = {f"many/{number}": os.urandom(number * 90_001) for number in range(24)}

    async def all_at_once():
        async with secure.http2() as client:
            async def write_and_read(key):
                written = await secure.request(client, "PUT", f"/tls/{key}", bodies[key])
                return written, await secure.request(client, "GET", f"/tls/{key}")
            return await asyncio.gather(*map(write_and_read, bodies))

    answers = dict(zip(bodies, asyncio.run(all_at_once())))
    for key, (written, read) in answers.items():
        assert (written.status_code, read.status_code) == (200, 200), (written.text, read.text[:300])
        assert written.http_version == read.http_version == "HTTP/2"
        assert read.content == bodies[key]


def test_errors_and_presigned_urls_over_http2(secure):
    url = secure.boto3().generate_presigned_url("get_object", Params={"Bucket": "tls", "Key": "signed"})

    async def ask():
        async with secure.http2() as client:
            missing = await secure.request(client, "GET", "/tls/missing")
            assert missing.status_code == 404 and "<Code>NoSuchKey</Code>" in missing.text
            assert (await client.get(f"{secure.endpoint}/tls/one")).status_code == 403
            written = await secure.request(client, "PUT", "/tls/signed", b"by a link")
            assert written.status_code == 200, written.text
            assert (await client.get(url)).content == b"by a link"

    asyncio.run(ask())


def test_policies_know_that_it_is_tls(secure):
    s3 = secure.boto3()
    s3.create_bucket(Bucket="only-tls")
    s3.delete_public_access_block(Bucket="only-tls")
    s3.put_object(Bucket="only-tls", Key="key", Body=b"open")
    for version, status in (("1.2", 200), ("1.9", 403)):
        s3.put_bucket_policy(Bucket="only-tls", Policy=json.dumps({
            "Version": "2012-10-17",
            "Statement": [{
                "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
                "Resource": "arn:aws:s3:::only-tls/*",
                "Condition": {"Bool": {"aws:SecureTransport": "true"},
                              "NumericGreaterThanEquals": {"s3:TlsVersion": version}},
            }],
        }))
        deadline = time.monotonic() + MARGIN_S
        url = f"{secure.endpoint}/only-tls/key"
        while httpx.get(url, verify=secure.papers.context()).status_code != status:
            assert time.monotonic() < deadline, f"TLS {version} is not {status}"
            time.sleep(0.2)


def test_clients_without_tls_get_the_scheme_to_write(secure):
    with socket.create_connection(secure.server.address, timeout=MARGIN_S) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        reply = b""
        while part := plain.recv(4096):
            reply += part
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert b"https://" in reply


def test_who_goes_silent_is_left(secure):
    with socket.create_connection(secure.server.address, timeout=MARGIN_S) as before_tls:
        with secure.connect() as idle:
            idle.sendall(PREFACE)
            ends(idle)
        ends(before_tls)


def test_a_renewed_certificate_is_shown_to_new_connections(secure):
    def shown():
        return ssl.get_server_certificate(secure.server.address).split()

    renewed = secure.papers.renew().split()
    deadline = time.monotonic() + MARGIN_S
    while shown() != renewed:
        assert time.monotonic() < deadline, "the old certificate is shown still"
        time.sleep(0.3)
    secure.papers.key.write_text("no key")
    time.sleep(6)
    assert shown() == renewed, "one that can't be used was taken"
    secure.papers.renew()
    assert secure.boto3().list_buckets()["Buckets"]


def test_a_key_without_its_certificate_is_refused(tmp_path):
    papers = Papers(tmp_path)
    with pytest.raises(RuntimeError, match="s3_tls_certificate"):
        with running_server(settings={"MARTLET_S3_TLS_KEY": str(papers.key)}):
            pass
    with pytest.raises(RuntimeError, match="can't be read"):
        flags = ["--s3-tls-certificate", str(tmp_path / "none"), "--s3-tls-key", str(papers.key)]
        with running_server(flags=flags):
            pass
