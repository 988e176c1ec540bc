//! Objects: writes, whole and ranged reads, conditions, metadata, deletion.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};

use crate::world::World;

/// More than fits into an entry, and more than one chunk of a read.
fn large() -> Vec<u8> {
    (0..2_500_000u32).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

#[tokio::test]
async fn objects_are_read_as_written() {
    let world = World::with_bucket().await;
    for (key, body) in [("empty", vec![]), ("small", b"hello".to_vec()), ("large", large())] {
        let target = format!("/bkt/{key}");
        let etag = format!("\"{}\"", hex::encode(Md5::digest(&body)));
        let put = world.put(&target, body.clone()).await;
        assert_eq!(put.header("etag"), etag);
        assert_eq!(put.header("x-martlet-consistency"), "quorum");
        let got = world.get(&target).await.expect(200);
        assert_eq!(got.bytes(), body);
        assert_eq!(got.header("etag"), etag);
        assert_eq!(got.header("content-length"), body.len().to_string());
        assert_eq!(got.header("content-type"), "binary/octet-stream");
        assert_eq!(got.header("accept-ranges"), "bytes");
        assert_eq!(got.header("last-modified"), "Thu, 01 Jan 2026 00:00:00 GMT");
        assert_eq!(got.header("x-martlet-stamp"), put.header("x-martlet-stamp"));
        let head = world.call("HEAD", &target).send().await.expect(200);
        assert_eq!(head.header("content-length"), body.len().to_string());
        assert_eq!(head.header("etag"), etag);
        assert!(head.bytes().is_empty());
    }
    world.get("/bkt/nothing").await.refused(404, "NoSuchKey");
    assert!(world.call("HEAD", "/bkt/nothing").send().await.expect(404).bytes().is_empty());
}

#[tokio::test]
async fn keys_are_bytes_and_not_paths() {
    let world = World::with_bucket().await;
    let keys =
        ["a%20b", "%2B", "a%25b", "a/../b", "a//b", "./x", "dir/", "%D0%BA%D0%BB", "a%0D%0Ab"];
    for key in keys {
        world.put(&format!("/bkt/{key}"), key).await;
    }
    for key in keys {
        assert_eq!(world.get(&format!("/bkt/{key}")).await.expect(200).text(), key);
    }
    world.put(&format!("/bkt/{}", "k".repeat(1024)), "x").await;
    let long = world.call("PUT", &format!("/bkt/{}", "k".repeat(1025))).send().await;
    long.refused(400, "KeyTooLongError");
}

#[tokio::test]
async fn documents_keep_the_carriage_returns_of_keys() {
    let world = World::with_bucket().await;
    world.put("/bkt/a%0D%0Ab", "x").await;
    assert_eq!(world.get("/bkt?list-type=2").await.one("Key"), "a&#13;\nb");
    let begun = world.call("POST", "/bkt/a%0D%0Ab?uploads").send().await.expect(200);
    assert_eq!(begun.one("Key"), "a&#13;\nb");
    let document = "<a>\r\n</a>";
    world
        .call("PUT", "/bkt/xml")
        .header("content-type", "application/xml")
        .body(document)
        .send()
        .await;
    assert_eq!(world.get("/bkt/xml").await.text(), document);
}

#[tokio::test]
async fn ranges() {
    let world = World::with_bucket().await;
    let body = large();
    world.put("/bkt/k", body.clone()).await;
    let size = body.len();
    let last = size - 1;
    for (range, from, to) in [
        ("bytes=0-0".to_owned(), 0, 1),
        ("bytes=10-19".into(), 10, 20),
        ("bytes=1048570-1048590".into(), 1_048_570, 1_048_591),
        (format!("bytes={last}-"), last, size),
        ("bytes=5-99999999999999999999".into(), 5, size),
        ("bytes=-7".into(), size - 7, size),
        (format!("bytes=-{}", size * 2), 0, size),
    ] {
        let got = world.call("GET", "/bkt/k").header("range", &range).send().await.expect(206);
        assert_eq!(got.bytes(), body[from..to], "{range}");
        assert_eq!(got.header("content-range"), format!("bytes {from}-{}/{size}", to - 1));
        assert_eq!(got.header("content-length"), (to - from).to_string());
        let head = world.call("HEAD", "/bkt/k").header("range", &range).send().await.expect(206);
        assert_eq!(head.header("content-length"), (to - from).to_string());
    }
    for range in [format!("bytes={size}-"), "bytes=-0".into()] {
        let got = world.call("GET", "/bkt/k").header("range", &range).send().await;
        got.refused(416, "InvalidRange");
        assert_eq!(got.header("content-range"), format!("bytes */{size}"));
    }
    for range in ["bytes=9-3", "bytes=0-1,3-4", "lines=1-2", "nonsense"] {
        let got = world.call("GET", "/bkt/k").header("range", range).send().await.expect(200);
        assert_eq!(got.bytes().len(), size, "{range}");
    }
}

#[tokio::test]
async fn conditions_of_reads() {
    let world = World::with_bucket().await;
    let etag = world.put("/bkt/k", "x").await.header("etag").to_owned();
    let get = |name: &'static str, value: String| {
        let call = world.call("GET", "/bkt/k").header(name, &value);
        async move { call.send().await }
    };
    let before = "Wed, 31 Dec 2025 23:59:59 GMT".to_owned();
    let at = "Thu, 01 Jan 2026 00:00:00 GMT".to_owned();
    get("if-match", etag.clone()).await.expect(200);
    get("if-match", "*".into()).await.expect(200);
    get("if-match", format!("\"other\", {etag}")).await.expect(200);
    get("if-match", "\"other\"".into()).await.refused(412, "PreconditionFailed");
    get("if-none-match", "\"other\"".into()).await.expect(200);
    get("if-modified-since", before.clone()).await.expect(200);
    get("if-unmodified-since", before).await.refused(412, "PreconditionFailed");
    get("if-unmodified-since", at.clone()).await.expect(200);
    for (name, value) in [("if-none-match", etag.clone()), ("if-modified-since", at)] {
        let reply = get(name, value).await.expect(304);
        assert_eq!(reply.header("etag"), etag);
        assert!(reply.bytes().is_empty());
    }
    world.call("HEAD", "/bkt/k").header("if-none-match", &etag).send().await.expect(304);
}

#[tokio::test]
async fn conditions_of_writes_are_kept() {
    let world = World::with_bucket().await;
    let put = || world.call("PUT", "/bkt/k").body("new");
    put().header("if-none-match", "*").send().await.expect(200);
    put().header("if-none-match", "*").send().await.refused(412, "PreconditionFailed");
    let etag = world.call("HEAD", "/bkt/k").send().await.header("etag").to_owned();
    put().header("if-match", "\"other\"").send().await.refused(412, "PreconditionFailed");
    put().header("if-match", &etag).send().await.expect(200);
    let date = "Thu, 01 Jan 2026 00:00:00 GMT";
    put().header("if-unmodified-since", date).send().await.refused(501, "NotImplemented");
    let delete = || world.call("DELETE", "/bkt/k");
    delete().header("if-match", "\"other\"").send().await.refused(412, "PreconditionFailed");
    delete().header("if-none-match", "*").send().await.refused(501, "NotImplemented");
    delete().header("if-match", &etag).send().await.expect(204);
    world.get("/bkt/k").await.refused(404, "NoSuchKey");
    delete().send().await.expect(204);
}

#[tokio::test]
async fn an_object_is_described_and_the_description_overridden() {
    let world = World::with_bucket().await;
    let put = world
        .call("PUT", "/bkt/k")
        .header("content-type", "text/plain")
        .header("cache-control", "no-cache")
        .header("expires", "whenever")
        .header("x-amz-meta-colour", "blue")
        .header("x-amz-meta-empty-not", "x y")
        .body("x");
    put.send().await.expect(200);
    let got = world.get("/bkt/k").await.expect(200);
    assert_eq!(got.header("content-type"), "text/plain");
    assert_eq!(got.header("cache-control"), "no-cache");
    assert_eq!(got.header("expires"), "whenever");
    assert_eq!(got.header("x-amz-meta-colour"), "blue");
    assert_eq!(got.header("x-amz-meta-empty-not"), "x y");
    let query = "response-cache-control=max-age%3D1&response-content-disposition=attachment\
                 &response-content-type=image%2Fpng\
                 &response-expires=Thu%2C%2001%20Jan%202026%2000%3A00%3A00%20GMT";
    for method in ["GET", "HEAD"] {
        let got = world.call(method, &format!("/bkt/k?{query}")).send().await.expect(200);
        assert_eq!(got.header("content-type"), "image/png");
        assert_eq!(got.header("content-disposition"), "attachment");
        assert_eq!(got.header("cache-control"), "max-age=1");
        if method == "GET" {
            assert_eq!(got.header("expires"), "Thu, 01 Jan 2026 00:00:00 GMT");
        }
    }
    let much =
        world.call("PUT", "/bkt/k").header("x-amz-meta-much", &"v".repeat(2048)).send().await;
    much.refused(400, "MetadataTooLarge");
}

#[tokio::test]
async fn metadata_that_is_not_ascii_comes_back_in_encoded_words() {
    let world = World::with_bucket().await;
    let put =
        |value: &str| world.call("PUT", "/bkt/k").header("x-amz-meta-name", value).body("x").send();
    for value in ["caf\u{e9} \u{43a}\u{43b}\u{44e}\u{447}", "=?UTF-8?B?Y2Fmw6kg0LrQu9GO0Yc=?="] {
        put(value).await.expect(200);
        for method in ["GET", "HEAD"] {
            let got = world.call(method, "/bkt/k").send().await.expect(200);
            assert_eq!(got.header("x-amz-meta-name"), "=?UTF-8?B?Y2Fmw6kg0LrQu9GO0Yc=?=");
        }
    }
    for value in ["plain", "a=b?c=?", "=?x"] {
        put(value).await.expect(200);
        assert_eq!(world.get("/bkt/k").await.header("x-amz-meta-name"), value);
    }
}

#[tokio::test]
async fn errors_have_the_codes_that_sdks_check() {
    let world = World::with_bucket().await;
    world.put("/bkt/empty", "").await;
    let unsatisfiable = world.call("GET", "/bkt/empty").header("range", "bytes=0-9").send().await;
    unsatisfiable.refused(416, "InvalidRange");
    // Clients that fetch ranges recognize an empty object by this element, not by the headers.
    assert_eq!(unsatisfiable.one("ActualObjectSize"), "0");
    assert_eq!(unsatisfiable.header("content-range"), "bytes */0");
    for (name, value, condition) in
        [("if-none-match", "*", "If-None-Match"), ("if-match", "\"other\"", "If-Match")]
    {
        let put = world.call("PUT", "/bkt/empty").header(name, value).body("x").send().await;
        put.refused(412, "PreconditionFailed");
        assert_eq!(put.one("Condition"), condition);
        assert!(!put.has("x-martlet-error-detail"));
    }
}

#[tokio::test]
async fn bodies_must_match_their_declared_length_and_checksums() {
    let world = World::with_bucket().await;
    let put = || world.call("PUT", "/bkt/k").body("hello");
    let md5 = STANDARD.encode(Md5::digest("hello"));
    put().header("content-md5", &md5).send().await.expect(200);
    let other = STANDARD.encode(Md5::digest("other"));
    let wrong = world.call("PUT", "/bkt/wrong").body("hello").header("content-md5", &other);
    wrong.send().await.refused(400, "BadDigest");
    let wrong = world.call("PUT", "/bkt/wrong").body("hello");
    wrong.header("x-amz-checksum-crc32", "AAAAAA==").send().await.refused(400, "BadDigest");
    let short = world.call("PUT", "/bkt/wrong").body("hello").header("content-length", "9");
    short.send().await.refused(400, "IncompleteBody");
    world.get("/bkt/wrong").await.refused(404, "NoSuchKey");
    assert!(world.node.extents_in_use().is_empty());
}

#[tokio::test]
async fn checksums_are_stored_and_returned_on_request() {
    let world = World::with_bucket().await;
    let crc32 = ("x-amz-checksum-crc32", "NhCmhg==");
    let put = world.call("PUT", "/bkt/k").header(crc32.0, crc32.1).body("hello");
    let put = put.send().await.expect(200);
    assert_eq!(put.header(crc32.0), crc32.1);
    for method in ["GET", "HEAD"] {
        let call = world.call(method, "/bkt/k").header("x-amz-checksum-mode", "ENABLED");
        let reply = call.send().await.expect(200);
        assert_eq!(reply.header(crc32.0), crc32.1);
        assert_eq!(reply.header("x-amz-checksum-type"), "FULL_OBJECT");
        assert!(!world.call(method, "/bkt/k").send().await.expect(200).has(crc32.0));
    }
    for algorithm in ["CRC32C", "CRC64NVME", "SHA1", "SHA256"] {
        let put = world.call("PUT", "/bkt/k").header("x-amz-sdk-checksum-algorithm", algorithm);
        put.body("hello").send().await.refused(400, "InvalidRequest");
    }
}

#[tokio::test]
async fn a_full_device_refuses_writes_and_lets_deletes_through() {
    let world = World::with_bucket().await;
    world.put("/bkt/k", large()).await;
    world.node.set_full(world.device, true);
    let put = world.call("PUT", "/bkt/more").body(large()).send().await;
    put.refused(507, "InsufficientStorage");
    world.call("DELETE", "/bkt/k").send().await.expect(204);
    world.node.set_full(world.device, false);
    world.put("/bkt/more", large()).await;
}

#[tokio::test]
async fn a_node_out_of_reach_means_try_again() {
    let world = World::with_bucket().await;
    world.put("/bkt/k", "x").await;
    world.node.set_offline(world.device, true);
    let got = world.get("/bkt/k").await;
    got.refused(503, "ServiceUnavailable");
    assert_eq!(got.header("retry-after"), "1");
    world.node.set_offline(world.device, false);
    world.get("/bkt/k").await.expect(200);
}

#[tokio::test]
async fn many_keys_are_deleted_at_once() {
    let world = World::with_bucket().await;
    for key in ["one", "two", "%20odd%20"] {
        world.put(&format!("/bkt/{key}"), "x").await;
    }
    let etag = world.call("HEAD", "/bkt/two").send().await.header("etag").to_owned();
    let document =
        |keys: &str, quiet: bool| format!("<Delete>{keys}<Quiet>{quiet}</Quiet></Delete>");
    let delete = |document: String| {
        let md5 = STANDARD.encode(Md5::digest(&document));
        world.call("POST", "/bkt?delete").header("content-md5", &md5).body(document).send()
    };
    let wrong = "<Object><Key>two</Key><ETag>\"other\"</ETag></Object>";
    let keys = format!("<Object><Key>one</Key></Object><Object><Key>gone</Key></Object>{wrong}");
    let reply = delete(document(&keys, false)).await.expect(200);
    assert_eq!(reply.all("Deleted"), ["<Key>one</Key>", "<Key>gone</Key>"]);
    assert_eq!(reply.one("Code"), "PreconditionFailed");
    world.get("/bkt/one").await.refused(404, "NoSuchKey");
    let right = format!("<Object><Key>two</Key><ETag>{etag}</ETag></Object>");
    world.put("/bkt/%F0%9F%94%91", "x").await;
    let odd = "<Object><Key> odd </Key></Object><Object><Key>&#128273;</Key></Object>";
    let reply = delete(document(&format!("{right}{odd}"), true)).await.expect(200);
    assert!(reply.all("Deleted").is_empty() && reply.all("Error").is_empty());
    world.get("/bkt/two").await.refused(404, "NoSuchKey");
    world.get("/bkt/%20odd%20").await.refused(404, "NoSuchKey");
    world.get("/bkt/%F0%9F%94%91").await.refused(404, "NoSuchKey");
    let many = |count: usize| {
        let keys: Vec<_> =
            (0..count).map(|at| format!("<Object><Key>k{at}</Key></Object>")).collect();
        keys.concat()
    };
    let reply = delete(document(&many(1000), false)).await.expect(200);
    assert_eq!(reply.all("Deleted").len(), 1000);
    delete(document(&many(1001), false)).await.refused(400, "MalformedXML");
}
