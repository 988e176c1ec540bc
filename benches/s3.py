"""S3 requests signed by hand, for what the load generator has no name for."""

import hashlib
import hmac
import http.client
import time
import urllib.parse

from martlet import ACCESS_KEY, SECRET_KEY

REGION, PAYLOAD = "us-east-1", "UNSIGNED-PAYLOAD"


def _hmac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _signed(method, host, path, headers):
    """The headers of a request with its signature (Signature Version 4). A query is given as it is signed."""
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    all_headers = {**headers, "host": host, "x-amz-date": now, "x-amz-content-sha256": PAYLOAD}
    names = sorted(all_headers)
    listed = ";".join(names)
    lines = "".join(f"{name}:{all_headers[name]}\n" for name in names)
    path, _, query = path.partition("?")
    request = f"{method}\n{path}\n{query}\n{lines}\n{listed}\n{PAYLOAD}"
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{SECRET_KEY}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    signature = _hmac(key, f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}").hex()
    all_headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, "
                                    f"SignedHeaders={listed}, Signature={signature}")
    return all_headers


class Client:
    """A connection to an endpoint."""

    def __init__(self, endpoint):
        self.host = urllib.parse.urlsplit(endpoint).netloc
        self.connection = http.client.HTTPConnection(self.host, timeout=60)

    def send(self, method, path, headers=None, body=b""):
        """The bytes of an answer; whatever isn't done ends the program."""
        reply = self.begin(method, path, headers, body)
        data = reply.read()
        if reply.status not in (200, 204, 206):
            raise SystemExit(f"{method} {path}: {reply.status} {data[:400]}")
        return data

    def begin(self, method, path, headers=None, body=b""):
        """The reply to a request, its body not read yet."""
        signed = _signed(method, self.host, path, headers or {})
        self.connection.request(method, path, body=body, headers=signed)
        return self.connection.getresponse()
