//! Checksums of all S3's algorithms, including those without a field in s3s.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use martlet_protocol::entry::ChecksumAlgorithm;
use martlet_proxy::checksum_of;

use crate::world::{TestReply, World};

const BODY: &str = "hello";
const PARTS: [&str; 2] = ["sixteen bytes...", "tail"];

/// Name, header and element of an algorithm.
fn names(algorithm: ChecksumAlgorithm) -> (String, String, String) {
    let name = format!("{algorithm:?}").to_ascii_uppercase();
    let header = format!("x-amz-checksum-{}", name.to_ascii_lowercase());
    let element = format!("Checksum{name}");
    (name, header, element)
}

fn sum(algorithm: ChecksumAlgorithm, bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(checksum_of(algorithm, bytes.as_ref()))
}

async fn attributes(world: &World) -> TestReply {
    let call = world.call("GET", "/bkt/k?attributes");
    call.header("x-amz-object-attributes", "Checksum,ObjectParts").send().await.expect(200)
}

#[tokio::test]
async fn each_algorithm_is_verified_stored_and_returned() {
    let world = World::with_bucket().await;
    for algorithm in ChecksumAlgorithm::ALL {
        let (name, header, element) = names(algorithm);
        let value = sum(algorithm, BODY);
        let put = |value: &str| {
            let call = world.call("PUT", "/bkt/k").header("x-amz-sdk-checksum-algorithm", &name);
            call.header(&header, value).body(BODY).send()
        };
        put(&sum(algorithm, "other")).await.refused(400, "BadDigest");
        put("AAAA").await.refused(400, "InvalidRequest");
        assert_eq!(put(&value).await.expect(200).header(&header), value);
        for method in ["GET", "HEAD"] {
            let call = world.call(method, "/bkt/k").header("x-amz-checksum-mode", "ENABLED");
            let reply = call.send().await.expect(200);
            assert_eq!(reply.header(&header), value);
            assert_eq!(reply.header("x-amz-checksum-type"), "FULL_OBJECT");
        }
        assert_eq!(attributes(&world).await.one(&element), value);
        let copied = world.call("PUT", "/bkt/copy").header("x-amz-copy-source", "/bkt/k");
        assert_eq!(copied.send().await.expect(200).one(&element), value);
        let listed = world.get("/bkt?list-type=2&prefix=copy").await.expect(200);
        assert_eq!(listed.one("ChecksumAlgorithm"), name);
    }
}

#[tokio::test]
async fn each_algorithm_works_in_trailers_and_copies() {
    let world = World::with_bucket().await;
    for algorithm in ChecksumAlgorithm::ALL {
        let (name, header, element) = names(algorithm);
        let put = |value: &str| {
            let framed = format!("5\r\n{BODY}\r\n0\r\n{header}:{value}\r\n\r\n");
            world
                .call("PUT", "/bkt/k")
                .payload("STREAMING-UNSIGNED-PAYLOAD-TRAILER")
                .header("x-amz-decoded-content-length", "5")
                .header("x-amz-trailer", &header)
                .header("x-amz-sdk-checksum-algorithm", &name)
                .body(framed)
                .send()
        };
        put(&sum(algorithm, "other")).await.refused(400, "BadDigest");
        let value = sum(algorithm, BODY);
        assert_eq!(put(&value).await.expect(200).header(&header), value);
        world.put("/bkt/plain", BODY).await;
        let copied = world.call("PUT", "/bkt/copy").header("x-amz-copy-source", "/bkt/plain");
        let copied = copied.header("x-amz-checksum-algorithm", &name).send().await.expect(200);
        assert_eq!(copied.one(&element), value);
    }
}

#[tokio::test]
async fn documents_are_compared_with_each() {
    let world = World::with_bucket().await;
    let document = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
    for algorithm in ChecksumAlgorithm::ALL {
        let (_, header, _) = names(algorithm);
        let put = |of: &str| {
            let call = world.call("PUT", "/bkt?tagging").header(&header, &sum(algorithm, of));
            call.body(document).send()
        };
        put("other").await.refused(400, "BadDigest");
        put(document).await.expect(204);
    }
}

/// Uploads parts with checksums, and returns them as CompleteMultipartUpload lists them.
async fn parts(world: &World, id: &str, algorithm: ChecksumAlgorithm) -> String {
    let (_, header, element) = names(algorithm);
    let mut named = String::new();
    for (number, body) in (1..).zip(PARTS) {
        let put = world.call("PUT", &format!("/bkt/k?partNumber={number}&uploadId={id}"));
        let put = put.header(&header, &sum(algorithm, body)).body(body).send().await.expect(200);
        let (etag, value) = (put.header("etag"), put.header(&header));
        assert_eq!(value, sum(algorithm, body));
        let sum = format!("<{element}>{value}</{element}>");
        let part = format!("<PartNumber>{number}</PartNumber><ETag>{etag}</ETag>{sum}");
        write!(named, "<Part>{part}</Part>").unwrap();
    }
    format!("<CompleteMultipartUpload>{named}</CompleteMultipartUpload>")
}

#[tokio::test]
async fn hashes_of_parts_make_a_composite() {
    let world = World::with_bucket().await;
    for algorithm in ChecksumAlgorithm::ALL.into_iter().filter(|it| !it.is_joinable()) {
        let (name, header, element) = names(algorithm);
        let begin = || {
            let call = world.call("POST", "/bkt/k?uploads");
            call.header("x-amz-checksum-algorithm", &name)
        };
        let whole = begin().header("x-amz-checksum-type", "FULL_OBJECT").send().await;
        whole.refused(400, "InvalidRequest");
        let begun = begin().send().await.expect(200);
        assert_eq!(begun.header("x-amz-checksum-algorithm"), name);
        assert_eq!(begun.header("x-amz-checksum-type"), "COMPOSITE");
        let id = begun.one("UploadId");
        let document = parts(&world, &id, algorithm).await;
        let values: Vec<String> = PARTS.iter().map(|part| sum(algorithm, part)).collect();
        let listed = world.get(&format!("/bkt/k?uploadId={id}")).await.expect(200);
        assert_eq!(listed.all(&element), values);
        let end = |document: &str| {
            world.call("POST", &format!("/bkt/k?uploadId={id}")).body(document.to_owned())
        };
        let swapped = document.replacen(&values[0], &values[1], 1);
        end(&swapped).send().await.refused(400, "InvalidPart");
        let cut = document.replacen(&values[0], "AAAA", 1);
        end(&cut).send().await.refused(400, "InvalidArgument");
        let silent = document.replace(&element, "ChecksumCRC32");
        end(&silent).send().await.refused(400, "InvalidArgument");
        let of_parts: Vec<u8> =
            PARTS.iter().flat_map(|part| checksum_of(algorithm, part.as_bytes())).collect();
        let expected = format!("{}-2", sum(algorithm, of_parts));
        end(&document).header(&header, &sum(algorithm, "x")).send().await.refused(400, "BadDigest");
        let done = end(&document).header(&header, &expected).send().await.expect(200);
        assert_eq!(
            (done.one(&element), done.one("ChecksumType")),
            (expected.clone(), "COMPOSITE".into())
        );
        let head =
            world.call("HEAD", "/bkt/k").header("x-amz-checksum-mode", "ENABLED").send().await;
        assert_eq!(head.header(&header), expected);
        let found = attributes(&world).await;
        assert_eq!(found.all(&element), [vec![expected], values].concat());
    }
}
