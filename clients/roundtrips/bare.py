"""Buckets for clients that have no word for them, made and removed over plain HTTP."""

import os
import sys
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/s3"))

from harness.sigv4 import Signer  # noqa: E402


def ask(method):
    target = "/" + os.environ["MARTLET_BUCKET"]
    headers = Signer().headers(method, target, {"host": os.environ["MARTLET_HOST"]})
    request = urllib.request.Request(os.environ["MARTLET_ENDPOINT"] + target, method=method, headers=headers)
    urllib.request.urlopen(request, timeout=30).close()


def make_bucket():
    ask("PUT")


def remove_bucket():
    ask("DELETE")
