"""kill -9 in the middle of a load: every acknowledged write is whole, every other whole or absent."""

import hashlib
import random
import threading
import time

from botocore.exceptions import BotoCoreError, ClientError

from conftest import client_for, running_server
from harness import server as harness
from harness import wire

KIB, MIB = 1 << 10, 1 << 20
SIZES = [0, 100, 4 * KIB, 8 * KIB + 1, 100 * KIB, MIB + 1, 6 * MIB]
ROUNDS = 4
WRITERS = 8


def body(key, version):
    """The bytes of a version of a key: what they are says which they are."""
    rng = random.Random(f"{key}/{version}")
    return rng.randbytes(rng.choice(SIZES))


class Writer(threading.Thread):
    """Writes and deletes its own keys, and remembers what was acknowledged and what may be."""

    def __init__(self, server, number, histories, seed):
        super().__init__()
        self.client, self.number, self.histories = client_for(server), number, histories
        self.rng = random.Random(seed)

    def run(self):
        version = 0
        while True:
            key = f"w{self.number}/{self.rng.randrange(12)}"
            version += 1
            history = self.histories.setdefault(key, {"sure": None, "maybe": []})
            deletes = self.rng.random() < 0.15
            wanted = None if deletes else (self.number, version, self.rng.random())
            history["maybe"].append(wanted)
            try:
                if deletes:
                    self.client.delete_object(Bucket="crash", Key=key)
                else:
                    self.client.put_object(Bucket="crash", Key=key, Body=body(key, wanted))
            except (BotoCoreError, ClientError):
                return
            history["sure"], history["maybe"] = wanted, []


def stored(client, key):
    try:
        return client.get_object(Bucket="crash", Key=key)["Body"].read()
    except client.exceptions.NoSuchKey:
        return None


def check(client, histories):
    for key, history in histories.items():
        possible = [history["sure"], *history["maybe"]]
        bytes_found = stored(client, key)
        bodies = [None if version is None else body(key, version) for version in possible]
        assert bytes_found in bodies, (
            f"{key} holds {bytes_found and hashlib.md5(bytes_found).hexdigest()}, which nobody wrote")
        # What was found is what is there from now on.
        history["sure"], history["maybe"] = possible[bodies.index(bytes_found)], []
    listed = set()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="crash"):
        listed |= {item["Key"] for item in page.get("Contents", [])}
    assert listed == {key for key, history in histories.items() if history["sure"] is not None}


def test_acknowledged_writes_survive_kill_9():
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    histories = {}
    with running_server() as server:
        client_for(server).create_bucket(Bucket="crash")
        for _ in range(ROUNDS):
            writers = [Writer(server, n, histories, rng.random()) for n in range(WRITERS)]
            for writer in writers:
                writer.start()
            time.sleep(rng.uniform(0.5, 2))
            server.kill()
            for writer in writers:
                writer.join()
            server.start()
            check(client_for(server), histories)
        assert histories


def test_an_upload_survives_kill_9():
    with running_server() as server:
        client = client_for(server)
        client.create_bucket(Bucket="crash")
        where = {"Bucket": "crash", "Key": "k"}
        where["UploadId"] = client.create_multipart_upload(**where)["UploadId"]
        parts = [random.randbytes(5 * MIB), random.randbytes(100)]
        tags = []
        for number, data in enumerate(parts, 1):
            tags.append(client.upload_part(**where, PartNumber=number, Body=data)["ETag"])
            server.kill()
            server.start()
        document = {"Parts": [{"PartNumber": n, "ETag": tag} for n, tag in enumerate(tags, 1)]}
        done = client.complete_multipart_upload(**where, MultipartUpload=document)
        server.kill()
        server.start()
        response = client.get_object(Bucket="crash", Key="k")
        assert response["Body"].read() == b"".join(parts) and response["ETag"] == done["ETag"]


def test_sigterm_lets_requests_end():
    with running_server() as server:
        client = client_for(server)
        client.create_bucket(Bucket="crash")
        target, data = "/crash/k", random.randbytes(3 * MIB)
        headers = {**wire.Signer().headers("PUT", target, {"host": server.host}),
                   "content-length": str(len(data))}
        with wire.Wire(server) as connection:
            connection.send(wire.head("PUT", target, headers) + data[:MIB])
            time.sleep(0.3)
            server.process.terminate()
            time.sleep(0.3)
            connection.send(data[MIB:])
            assert connection.reply("PUT").status == 200
        # A second signal would mean: at once.
        assert server.process.wait(harness.STOP_S) == 0
        server.start()
        assert client.get_object(Bucket="crash", Key="k")["Body"].read() == data
