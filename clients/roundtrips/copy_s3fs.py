"""Copies between an object and a pipe: `copy_s3fs.py s3://… -` or `copy_s3fs.py - s3://…`, through s3fs."""

import os
import shutil
import sys

import fsspec


def opened(place, mode, pipe):
    return pipe if place == "-" else fsspec.open(place, mode, endpoint_url=os.environ["MARTLET_ENDPOINT"]).open()


with opened(sys.argv[1], "rb", sys.stdin.buffer) as source, opened(sys.argv[2], "wb", sys.stdout.buffer) as sink:
    shutil.copyfileobj(source, sink, 1 << 20)
