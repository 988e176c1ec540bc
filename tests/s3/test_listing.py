"""ListObjects, versions 1 and 2, against a model written here."""

import concurrent.futures
import random

import pytest

from harness import sigv4, wire
from helpers import assert_refused, refused

KEYS = sorted(
    ["a", "a/", "a/1", "a/2", "a/b/c", "a/b/d", "a0", "b", "b//x", "b/y", "c c", "c+c", "c%20c",
     "d/e/f/g", "d/e/f/h", "z", "ä/1", "ä/2", "日本/1", "日本/2", "\U0001f985"]
    + [f"many/{n:03}" for n in range(120)] + [f"fold{n:02}/{m}" for n in range(30) for m in range(3)],
    key=str.encode)


@pytest.fixture(scope="module")
def listed(s3):
    name = "listing"
    s3.create_bucket(Bucket=name)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: s3.put_object(Bucket=name, Key=key, Body=key.encode()), KEYS))
    yield name
    s3.delete_objects(Bucket=name, Delete={"Objects": [{"Key": key} for key in KEYS]})
    s3.delete_bucket(Bucket=name)


def model(prefix, delimiter):
    """What all pages of a listing have together, in order: keys, and folded prefixes."""
    result = []
    for key in KEYS:
        if not key.startswith(prefix):
            continue
        head, found, _ = key[len(prefix):].partition(delimiter) if delimiter else (key, "", "")
        entry = prefix + head + found if found else key
        if entry not in result:
            result.append(entry)
    return result


def entries(page):
    found = [item["Key"] for item in page.get("Contents", [])]
    found += [item["Prefix"] for item in page.get("CommonPrefixes", [])]
    return sorted(found, key=str.encode)


def pages_v2(s3, bucket, **how):
    token = {}
    while True:
        page = s3.list_objects_v2(Bucket=bucket, **how, **token)
        yield page
        if not page["IsTruncated"]:
            assert "NextContinuationToken" not in page
            return
        token = {"ContinuationToken": page["NextContinuationToken"]}


def pages_v1(s3, bucket, **how):
    marker = {}
    while True:
        page = s3.list_objects(Bucket=bucket, **how, **marker)
        yield page
        if not page["IsTruncated"]:
            return
        marker = {"Marker": page.get("NextMarker") or page["Contents"][-1]["Key"]}


FOLDS = [("", ""), ("a", ""), ("a/", "/"), ("", "/"), ("b/", "/"), ("many/", "/"), ("fold", "/"),
         ("d/e", "/"), ("ä", "/"), ("", "fold"), ("nothing", "/"), ("日本/", ""), ("", "c")]


@pytest.mark.parametrize("pages", [pages_v1, pages_v2])
# One key a page over everything would say nothing new, and take long.
@pytest.mark.parametrize("size,prefix,delimiter", [
    (size, *fold) for size in (1, 2, 7, 100, 1000) for fold in FOLDS if size > 1 or fold[0]])
def test_paging(s3, listed, pages, size, prefix, delimiter):
    seen = []
    for page in pages(s3, listed, Prefix=prefix, Delimiter=delimiter, MaxKeys=size):
        found = entries(page)
        assert len(found) <= size
        if page["IsTruncated"]:
            assert len(found) == size
        if "KeyCount" in page:
            assert page["KeyCount"] == len(found)
        seen += found
    assert seen == model(prefix, delimiter)


def test_start_after(s3, listed):
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    for after in ["", "a", "a/", "a/1", "m", "zzz", "fold05", "fold05/0", "\U0010ffff"] + rng.sample(KEYS, 10):
        page = s3.list_objects_v2(Bucket=listed, StartAfter=after)
        assert entries(page) == [key for key in KEYS if key.encode() > after.encode()], (seed, after)
        page = s3.list_objects(Bucket=listed, Marker=after)
        assert entries(page) == [key for key in KEYS if key.encode() > after.encode()], (seed, after)


def test_a_marker_that_is_a_folded_prefix_passes_over_it(s3, listed):
    page = s3.list_objects(Bucket=listed, Prefix="fold", Delimiter="/", Marker="fold05/")
    assert entries(page)[0] == "fold06/"


def test_an_entry_says_what_the_object_is(s3, listed):
    item = s3.list_objects_v2(Bucket=listed, Prefix="a/1", FetchOwner=True)["Contents"][0]
    head = s3.head_object(Bucket=listed, Key="a/1")
    assert item["ETag"] == head["ETag"] and item["Size"] == 3
    assert item["StorageClass"] == "STANDARD" and item["Owner"]["ID"]
    assert abs((item["LastModified"] - head["LastModified"]).total_seconds()) < 1
    assert "Owner" not in s3.list_objects_v2(Bucket=listed, Prefix="a/1")["Contents"][0]
    assert "Owner" in s3.list_objects(Bucket=listed, Prefix="a/1")["Contents"][0]


def test_keys_that_xml_cannot_hold_are_encoded_on_wish(server, s3, bucket):
    keys = ["a\x01b", "c\nd", "é +%", "e\x1f/f"]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    reply = wire.request(server, "GET", f"/{bucket}?list-type=2&encoding-type=url&delimiter=%2F")
    assert reply.status == 200
    assert b"<EncodingType>url</EncodingType>" in reply.body
    for encoded in (b"<Key>a%01b</Key>", b"<Key>c%0Ad</Key>", b"<Prefix>e%1F/</Prefix>"):
        assert encoded in reply.body.replace(b"e%1F%2F", b"e%1F/"), reply.body
    assert b"%C3%A9" in reply.body and b"%2B%25" in reply.body


def test_max_keys(s3, listed, server):
    assert s3.list_objects_v2(Bucket=listed, MaxKeys=0)["KeyCount"] == 0
    assert s3.list_objects_v2(Bucket=listed, MaxKeys=0)["IsTruncated"] is False
    assert s3.list_objects_v2(Bucket=listed, MaxKeys=5000)["MaxKeys"] in (1000, 5000)
    for text in ("-1", "x", "1.5", "99999999999999999999"):
        for version in ("list-type=2&", ""):
            reply = wire.request(server, "GET", f"/{listed}?{version}max-keys={text}")
            assert_refused(reply, 400, "InvalidArgument")


def test_other_bad_parameters(listed, server):
    for query in ("encoding-type=base64", "list-type=2&encoding-type=base64"):
        assert_refused(wire.request(server, "GET", f"/{listed}?{query}"), 400, "InvalidArgument")
    for query in ("list-type=3", "list-type=x"):
        assert_refused(wire.request(server, "GET", f"/{listed}?{query}"), 501, "NotImplemented")


def test_forged_tokens(server, s3, listed):
    page = s3.list_objects_v2(Bucket=listed, MaxKeys=3)
    token = page["NextContinuationToken"]
    forged = ["x", "../..", "AAAA", token[:-1], token + "A", token[::-1], "%00", "🦅", "A" * 5000]
    if token[0].isalnum():
        forged.append(("B" if token[0] != "B" else "C") + token[1:])
    for text in forged:
        query = f"list-type=2&continuation-token={sigv4.encode(text.encode())}"
        reply = wire.request(server, "GET", f"/{listed}?{query}")
        assert_refused(reply, 400, "InvalidArgument")


def test_more_than_a_page(s3, bucket):
    keys = [f"{n:05}" for n in range(1100)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: s3.put_object(Bucket=bucket, Key=key, Body=b""), keys))
    page = s3.list_objects_v2(Bucket=bucket)
    assert (page["KeyCount"], page["IsTruncated"]) == (1000, True)
    rest = s3.list_objects_v2(Bucket=bucket, ContinuationToken=page["NextContinuationToken"])
    assert entries(page) + entries(rest) == keys and rest["IsTruncated"] is False


def test_a_listing_follows_every_write_at_once(s3, bucket):
    for turn in range(30):
        s3.put_object(Bucket=bucket, Key=f"{turn:02}", Body=b"")
        if turn % 3 == 0:
            s3.delete_object(Bucket=bucket, Key=f"{turn:02}")
        expected = [f"{n:02}" for n in range(turn + 1) if n % 3]
        assert entries(s3.list_objects_v2(Bucket=bucket)) == expected


def test_a_list_of_a_missing_prefix_is_empty(s3, bucket):
    page = s3.list_objects_v2(Bucket=bucket, Prefix="none/", Delimiter="/")
    assert (page["KeyCount"], page["IsTruncated"]) == (0, False)
    with refused("NoSuchBucket", 404):
        s3.list_objects_v2(Bucket="not-there", Prefix="x")


def test_tokens_and_markers_are_said_again(server, s3, listed):
    page = s3.list_objects_v2(Bucket=listed, ContinuationToken="", StartAfter="b")
    assert page["ContinuationToken"] == "" and page["StartAfter"] == "b"
    reply = wire.request(server, "GET", f"/{listed}?encoding-type=url&delimiter=%2F&prefix=c%2B&marker=%2B")
    for part in (b"<Prefix>c%2B</Prefix>", b"<Marker>%2B</Marker>", b"<Delimiter>/</Delimiter>"):
        assert part in reply.body, reply.body


def test_a_prefix_is_told_as_it_is_where_that_reads_the_same(s3, listed):
    """botocore decodes all names of the first version's listings but this one."""
    for prefix in ("\n", "a b", "<ü>"):
        for call in (s3.list_objects, s3.list_objects_v2):
            assert call(Bucket=listed, Prefix=prefix)["Prefix"] == prefix


def test_any_order_is_one(server, s3, listed):
    reply = wire.request(server, "GET", f"/{listed}?allow-unordered=true&max-keys=3")
    assert reply.status == 200 and reply.body.count(b"<Key>") == 3
    for version in ("", "&list-type=2"):
        reply = wire.request(server, "GET", f"/{listed}?allow-unordered=true&delimiter=%2F{version}")
        assert_refused(reply, 400, "InvalidArgument")


def test_odd_delimiters(s3, listed):
    for delimiter in ("%", " ", ".", "\n", "//", "é", "a"):
        page = s3.list_objects_v2(Bucket=listed, Delimiter=delimiter)
        assert entries(page) == sorted(model("", delimiter), key=str.encode), delimiter


def test_buckets_come_in_pages(s3):
    names = [f"paged-{number}" for number in range(5)]
    for name in names:
        s3.create_bucket(Bucket=name)
    try:
        found, token = [], {}
        while True:
            page = s3.list_buckets(Prefix="paged-", MaxBuckets=2, **token)
            assert len(page["Buckets"]) <= 2 and page["Prefix"] == "paged-"
            found += [bucket["Name"] for bucket in page["Buckets"]]
            if "ContinuationToken" not in page:
                break
            token = {"ContinuationToken": page["ContinuationToken"]}
        assert found == names
    finally:
        for name in names:
            s3.delete_bucket(Bucket=name)
