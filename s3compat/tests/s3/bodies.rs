//! Bodies in aws-chunked framing, with trailers, through the whole service.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::world::{TestReply, TestRequest, World, sign};

const BODY: &str = "hello";
const CRC32: &str = "NhCmhg==";
const UNSIGNED: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
const SIGNED: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const SIGNED_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";

fn put<'a>(world: &'a World, payload: &'static str) -> TestRequest<'a> {
    let put =
        world.call("PUT", "/bkt/k").payload(payload).header("content-encoding", "aws-chunked");
    put.header("x-amz-decoded-content-length", &BODY.len().to_string())
}

fn unsigned(trailer: &str) -> String {
    format!("5\r\n{BODY}\r\n0\r\n{trailer}\r\n")
}

fn hash(bytes: &str) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// The body in one chunk, signed from a seed signature, with an optional trailer.
fn signed(seed: &str, body: &str, trailer: Option<&str>) -> Vec<u8> {
    let chunk = |previous: &str, data: &str| {
        let content = format!("{previous}\n{}\n{}", hash(""), hash(data));
        sign("AWS4-HMAC-SHA256-PAYLOAD", &content)
    };
    let first = chunk(seed, BODY);
    let last = chunk(&first, "");
    let mut framed = format!(
        "{:x};chunk-signature={first}\r\n{body}\r\n0;chunk-signature={last}\r\n",
        body.len()
    );
    if let Some(trailer) = trailer {
        let content = format!("{last}\n{}", hash(&format!("{trailer}\n")));
        let signature = sign("AWS4-HMAC-SHA256-TRAILER", &content);
        write!(framed, "{trailer}\r\nx-amz-trailer-signature:{signature}\r\n").unwrap();
    }
    framed.push_str("\r\n");
    framed.into_bytes()
}

async fn stored(world: &World) -> TestReply {
    let get = world.call("GET", "/bkt/k").header("x-amz-checksum-mode", "ENABLED");
    get.send().await.expect(200)
}

#[tokio::test]
async fn a_trailing_checksum_is_verified_stored_and_returned() {
    let world = World::with_bucket().await;
    let announced = || put(&world, UNSIGNED).header("x-amz-trailer", "x-amz-checksum-crc32");
    let right = unsigned(&format!("x-amz-checksum-crc32:{CRC32}\r\n"));
    let reply = announced().body(right).send().await.expect(200);
    assert_eq!(reply.header("x-amz-checksum-crc32"), CRC32);
    let got = stored(&world).await;
    assert_eq!((got.text().as_str(), got.header("x-amz-checksum-crc32")), (BODY, CRC32));
    assert!(!got.has("content-encoding"), "the framing is no encoding of the object");

    world.call("DELETE", "/bkt/k").send().await.expect(204);
    let wrong = unsigned("x-amz-checksum-crc32:AAAAAA==\r\n");
    announced().body(wrong).send().await.refused(400, "BadDigest");
    let nonsense = unsigned("x-amz-checksum-crc32:AAAA\r\n");
    announced().body(nonsense).send().await.refused(400, "InvalidRequest");
    let other = unsigned("x-amz-checksum-sha1:AAAA\r\n");
    announced().body(other).send().await.refused(400, "MalformedTrailerError");
    announced().body(unsigned("")).send().await.refused(400, "MalformedTrailerError");
    world.get("/bkt/k").await.refused(404, "NoSuchKey");
    assert!(world.node.extents_in_use().is_empty());
}

#[tokio::test]
async fn chunks_are_signed_one_from_the_other() {
    let world = World::with_bucket().await;
    put(&world, SIGNED).send_chunks(|seed| signed(seed, BODY, None)).await.expect(200);
    assert_eq!(stored(&world).await.text(), BODY);
    let forged = put(&world, SIGNED).send_chunks(|seed| signed(seed, "jello", None)).await;
    forged.refused(403, "SignatureDoesNotMatch");
    assert_eq!(stored(&world).await.text(), BODY);
}

#[tokio::test]
async fn a_signed_trailer_is_what_was_signed() {
    let world = World::with_bucket().await;
    let announced = || put(&world, SIGNED_TRAILER).header("x-amz-trailer", "x-amz-checksum-crc32");
    let trailer = format!("x-amz-checksum-crc32:{CRC32}");
    announced().send_chunks(|seed| signed(seed, BODY, Some(&trailer))).await.expect(200);
    assert_eq!(stored(&world).await.header("x-amz-checksum-crc32"), CRC32);
    world.call("DELETE", "/bkt/k").send().await.expect(204);
    let forged = announced().send_chunks(|seed| {
        let framed = String::from_utf8(signed(seed, BODY, Some(&trailer))).unwrap();
        framed.replace(CRC32, "AAAAAA==").into_bytes()
    });
    forged.await.refused(403, "SignatureDoesNotMatch");
    world.get("/bkt/k").await.refused(404, "NoSuchKey");
}

#[tokio::test]
async fn the_length_is_the_one_that_was_announced() {
    let world = World::with_bucket().await;
    let announced = |length: &str| {
        let put = world.call("PUT", "/bkt/k").payload(UNSIGNED);
        let put = put.header("x-amz-decoded-content-length", length);
        put.header("x-amz-trailer", "x-amz-checksum-crc32")
    };
    let body = unsigned(&format!("x-amz-checksum-crc32:{CRC32}\r\n"));
    for length in ["4", "6", "0"] {
        announced(length).body(body.clone()).send().await.refused(400, "IncompleteBody");
    }
    for cut in [1, 10, 30, body.len() - 4] {
        let cut = body[..body.len() - cut].to_owned();
        assert_eq!(announced("5").body(cut).send().await.status, 400);
    }
    world.get("/bkt/k").await.refused(404, "NoSuchKey");
    announced("5").body(body).send().await.expect(200);
}
