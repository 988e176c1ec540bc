"""SigV4 written out, so that tests can sign wrongly on purpose, and frame aws-chunked by hand."""

import datetime
import hashlib
import hmac
from urllib.parse import quote, unquote_to_bytes

from . import server

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
UNSIGNED = "UNSIGNED-PAYLOAD"


def stamp(offset_s=0):
    """The time as SigV4 writes it, some seconds from now."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return (now + datetime.timedelta(seconds=offset_s)).strftime("%Y%m%dT%H%M%SZ")


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def encode(data, safe=""):
    return quote(data, safe=safe + "-_.~")


def canonical_path(path):
    return encode(unquote_to_bytes(path), safe="/")


def canonical_query(query):
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    encoded = [(encode(unquote_to_bytes(k)), encode(unquote_to_bytes(v))) for k, _, v in pairs]
    return "&".join(f"{key}={value}" for key, value in sorted(encoded))


class Signer:
    """Signs as one identity; every part can be bent."""

    def __init__(self, access=server.ACCESS_KEY, secret=server.SECRET_KEY, region=server.REGION,
                 date=None):
        self.access, self.secret, self.region = access, secret, region
        self.date = date or stamp()

    @property
    def scope(self):
        return f"{self.date[:8]}/{self.region}/s3/aws4_request"

    def key(self):
        key = ("AWS4" + self.secret).encode()
        for part in self.scope.split("/"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return key

    def mac(self, text):
        return hmac.new(self.key(), text.encode(), hashlib.sha256).hexdigest()

    def signature(self, method, target, headers, names, payload):
        path, _, query = target.partition("?")
        lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in names)
        canonical = "\n".join(
            [method, canonical_path(path), canonical_query(query), lines, ";".join(names), payload])
        return self.mac(
            f"AWS4-HMAC-SHA256\n{self.date}\n{self.scope}\n{sha256(canonical.encode())}")

    def headers(self, method, target, headers, payload=UNSIGNED, unsigned=()):
        """`headers` completed by date, payload hash and signature. Names in `unsigned` are sent,
        but stay out of the signature."""
        headers = {name.lower(): value for name, value in headers.items()}
        headers["x-amz-date"] = self.date
        headers["x-amz-content-sha256"] = payload
        names = sorted(set(headers) - set(unsigned))
        signature = self.signature(method, target, headers, names, payload)
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.access}/{self.scope}, "
            f"SignedHeaders={';'.join(names)}, Signature={signature}")
        return headers

    def presign(self, method, target, host, expires=300, headers=None):
        """A target with a signed query. `headers` have to be sent along."""
        headers = {"host": host, **{k.lower(): v for k, v in (headers or {}).items()}}
        names = sorted(headers)
        query = (
            f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={encode(f'{self.access}/{self.scope}')}"
            f"&X-Amz-Date={self.date}&X-Amz-Expires={expires}"
            f"&X-Amz-SignedHeaders={encode(';'.join(names))}")
        target += ("&" if "?" in target else "?") + query
        signature = self.signature(method, target, headers, names, UNSIGNED)
        return f"{target}&X-Amz-Signature={signature}"


class Chunks:
    """Frames a body as aws-chunked, signed from the seed signature of its request or unsigned."""

    def __init__(self, signer=None, seed=None):
        self.signer, self.previous = signer, seed

    def chunk(self, data, signature=None):
        extension = ""
        if self.signer:
            self.previous = self.signer.mac("\n".join([
                "AWS4-HMAC-SHA256-PAYLOAD", self.signer.date, self.signer.scope, self.previous,
                EMPTY_SHA256, sha256(data)]))
            extension = f";chunk-signature={signature or self.previous}"
        return f"{len(data):x}{extension}\r\n".encode() + data + (b"\r\n" if data else b"")

    def trailer(self, name, value, signature=None):
        """The trailer and, where chunks are signed, its signature. Comes after an empty chunk."""
        lines = f"{name}:{value}\r\n"
        if self.signer:
            mac = self.signer.mac("\n".join([
                "AWS4-HMAC-SHA256-TRAILER", self.signer.date, self.signer.scope, self.previous,
                sha256(f"{name}:{value}\n".encode())]))
            lines += f"x-amz-trailer-signature:{signature or mac}\r\n"
        return lines.encode() + b"\r\n"
