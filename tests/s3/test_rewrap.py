"""A master key is replaced: `martlet admin bucket rewrap` wraps what the old one wrapped, versions too."""

import pytest

from conftest import client_for, running_server
from harness.admin import Refused, admin
from helpers import get, refused
from test_encryption import OURS, send, text, theirs, to_read

MIB = 1 << 20
NEW = "0b" * 32


def rewrap(server, *words):
    return admin(server.admin_port, "bucket", "rewrap", "box", *words)


def test_an_old_master_key_is_needed_no_more():
    with running_server() as server:
        s3 = client_for(server)
        s3.create_bucket(Bucket="box")
        s3.put_object(Bucket="box", Key="null", Body=text(1000), **OURS)
        s3.put_bucket_versioning(Bucket="box", VersioningConfiguration={"Status": "Enabled"})
        for number in range(250):
            s3.put_object(Bucket="box", Key=f"many/{number:03}", Body=b"x", **OURS)
        ids = [s3.put_object(Bucket="box", Key="k", Body=text(size), **OURS)["VersionId"] for size in (10, 100_000)]
        s3.put_object(Bucket="box", Key="theirs", Body=text(99), **theirs(1))
        s3.put_object(Bucket="box", Key="plain", Body=text(99))
        parts = [(1, text(5 * MIB)), (2, text(7))]
        send(s3, "box", "parts", parts, OURS, to_read(OURS))
        s3.delete_object(Bucket="box", Key="k")
        upload = s3.create_multipart_upload(Bucket="box", Key="up", **OURS)["UploadId"]
        before = s3.list_object_versions(Bucket="box")
        assert server.stop() == 0

        master = server.folder / "data" / "sse-master.key"
        master.write_text(f"{NEW}\n{master.read_text()}")
        server.start()
        with pytest.raises(Refused) as caught:
            rewrap(server)
        assert "1 open uploads need the old master key" in str(caught.value)
        s3.abort_multipart_upload(Bucket="box", Key="up", UploadId=upload)
        done = rewrap(server, "--rate", "2000")
        assert (done["rewrapped"], done["failed"], done["uploads"]) == (0, 0, 0)
        assert done["seen"] == len(before["Versions"]) + 1 == 257
        with pytest.raises(Refused) as caught:
            admin(server.admin_port, "bucket", "rewrap", "none")
        assert "bucket" in str(caught.value)
        assert server.stop() == 0

        master.write_text(NEW)
        server.start()
        after = s3.list_object_versions(Bucket="box")
        assert [(it["Key"], it["VersionId"], it["ETag"], it["LastModified"]) for it in after["Versions"]] \
            == [(it["Key"], it["VersionId"], it["ETag"], it["LastModified"]) for it in before["Versions"]]
        assert get(s3, "box", "null") == text(1000)
        assert [get(s3, "box", "k", VersionId=it) for it in ids] == [text(10), text(100_000)]
        assert get(s3, "box", "many/123") == b"x" and get(s3, "box", "plain") == text(99)
        assert get(s3, "box", "theirs", **theirs(1)) == text(99)
        assert get(s3, "box", "parts") == parts[0][1] + parts[1][1]
        with refused("404", 404):
            s3.head_object(Bucket="box", Key="k")
        assert server.complaints() == []
