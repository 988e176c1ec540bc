"""S3 over plain HTTP: buckets for clients that have no word for them, and a second look at what the
server holds, for which the client that is tried need not be trusted."""

import os
import sys
import urllib.request
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/s3"))

from harness.sigv4 import Signer  # noqa: E402

BUCKET = os.environ["MARTLET_BUCKET"]
NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"


def ask(method, key=None, query="", data=None, headers=None, bucket=BUCKET):
    """The headers and the body of a reply; an error unless it is one of success."""
    target = f"/{bucket}" if key is None else f"/{bucket}/{quote(key, safe='/-_.~')}"
    target += f"?{query}" if query else ""
    headers = Signer().headers(method, target, {"host": os.environ["MARTLET_HOST"], **(headers or {})})
    request = urllib.request.Request(os.environ["MARTLET_ENDPOINT"] + target, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.headers, reply.read()


def make_bucket():
    ask("PUT")


def remove_bucket():
    ask("DELETE")


def put(key, data):
    ask("PUT", key, data=data)


def get(key):
    return ask("GET", key)[1]


def parts(key):
    """The number of parts that an object was uploaded in; 0 if it was sent at once."""
    _, dash, count = ask("HEAD", key)[0]["ETag"].strip('"').partition("-")
    return int(count) if dash else 0


def keys(prefix="", bucket=BUCKET):
    """All keys below a prefix, in order, page after page."""
    found, token = [], ""
    while True:
        query = f"list-type=2&prefix={quote(prefix, safe='')}"
        query += f"&continuation-token={quote(token, safe='')}" if token else ""
        page = ElementTree.fromstring(ask("GET", query=query, bucket=bucket)[1])
        found += [key.text for key in page.iterfind(f"{NAMESPACE}Contents/{NAMESPACE}Key")]
        token = page.findtext(f"{NAMESPACE}NextContinuationToken")
        if not token:
            return found


def empty():
    for key in keys():
        ask("DELETE", key)


def uploads():
    """Keys of uploads that were begun and neither completed nor aborted."""
    page = ElementTree.fromstring(ask("GET", query="uploads=")[1])
    return [key.text for key in page.iterfind(f"{NAMESPACE}Upload/{NAMESPACE}Key")]
