"""One rank of a burst, run by the interpreter of the clients' environment.

    ranks.py LIBRARY BUCKET BYTES RANK

It prints a line of JSON when it is ready, and then for each line of its input, `save` or `restore`, the seconds
that it took. All settings are the library's defaults, but for path style.
"""

import hashlib
import io
import json
import os
import sys
import time

BLOCK_BYTES = 1 << 20


class OfConnector:
    """The client of s3torchconnector, without torch."""

    def __init__(self, bucket):
        from s3torchconnectorclient._mountpoint_s3_client import MountpointS3Client
        self.bucket = bucket
        # As S3ClientConfig has them.
        self.client = MountpointS3Client(region=os.environ["AWS_REGION"], user_agent_prefix="bench",
                                         throughput_target_gbps=10.0, part_size=8 << 20, force_path_style=True,
                                         endpoint=os.environ["AWS_ENDPOINT_URL"])

    def save(self, key, data):
        stream = self.client.put_object(self.bucket, key)
        for at in range(0, len(data), BLOCK_BYTES):
            stream.write(bytes(data[at:at + BLOCK_BYTES]))
        stream.close()

    def restore(self, key):
        return self.client.get_object(self.bucket, key)


class OfBoto3:
    def __init__(self, bucket):
        import boto3
        self.bucket, self.client = bucket, boto3.client("s3")

    def save(self, key, data):
        self.client.upload_fileobj(io.BytesIO(data), self.bucket, key)

    def restore(self, key):
        buffer = io.BytesIO()
        self.client.download_fileobj(self.bucket, key, buffer)
        return [buffer.getbuffer()]


def main(library, bucket, length, rank):
    client = {"s3torchconnector": OfConnector, "boto3": OfBoto3}[library](bucket)
    seed = hashlib.sha512(f"{library} {rank}".encode()).digest()
    data = (seed * (int(length) // len(seed) + 1))[:int(length)]
    key, expected = f"{library}-{rank}", hashlib.sha256(data).hexdigest()
    report("ready")
    for line in sys.stdin:
        begun = time.monotonic()
        if line.strip() == "save":
            client.save(key, data)
            report(time.monotonic() - begun)
            continue
        digest = hashlib.sha256()
        for piece in client.restore(key):
            digest.update(piece)
        seconds = time.monotonic() - begun
        if digest.hexdigest() != expected:
            raise SystemExit(f"{library}, rank {rank}: other bytes came back")
        report(seconds)


def report(value):
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
