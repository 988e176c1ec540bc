"""S3 requests for tests: signed URLs, and nothing beyond the standard library."""

import datetime
import hashlib
import hmac
import http.client
import socket
import urllib.parse

REGION = "us-east-1"
ANSWER_MAX_S = 60


def sign(key, *parts):
    """Derives a key or a signature, part by part."""
    for part in parts:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


class S3:
    """Client of one S3 port."""

    def __init__(self, host, port, access_key, secret_key):
        self.host, self.port = host, port
        self.access_key, self.secret_key = access_key, secret_key

    def target(self, method, path, query=None):
        """Returns the signed path and query of a request."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{now[:8]}/{REGION}/s3/aws4_request"
        signed = {**(query or {}), "X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Date": now, "X-Amz-Expires": "600",
                  "X-Amz-Credential": f"{self.access_key}/{scope}", "X-Amz-SignedHeaders": "host"}
        text = "&".join(f"{urllib.parse.quote(key, safe='')}={urllib.parse.quote(value, safe='')}"
                        for key, value in sorted(signed.items()))
        path = urllib.parse.quote(path)
        request = f"{method}\n{path}\n{text}\nhost:{self.host}:{self.port}\n\nhost\nUNSIGNED-PAYLOAD"
        message = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = sign(f"AWS4{self.secret_key}".encode(), now[:8], REGION, "s3", "aws4_request")
        return f"{path}?{text}&X-Amz-Signature={sign(key, message).hex()}"

    def request(self, method, path, body=b"", query=None):
        """Sends a request and returns status and body. A cut connection is status 0."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=ANSWER_MAX_S)
        try:
            connection.request(method, self.target(method, path, query), body)
            reply = connection.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def hold(self, path, size):
        """Begins an upload and sends nothing of its body. Returns the connection, which holds the request open."""
        connection = socket.create_connection((self.host, self.port), ANSWER_MAX_S)
        head = f"PUT {self.target('PUT', path)} HTTP/1.1\r\nhost: {self.host}:{self.port}\r\ncontent-length: {size}\r\n\r\n"
        connection.sendall(head.encode())
        return connection
