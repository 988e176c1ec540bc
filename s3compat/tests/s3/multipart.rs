//! Multipart uploads: creation, listing, completion, abortion, and copies of parts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::world::{TestReply, World};

const PART: &str = "sixteen bytes...";

async fn begin(world: &World, target: &str) -> String {
    world.call("POST", &format!("{target}?uploads")).send().await.expect(200).one("UploadId")
}

async fn part(world: &World, target: &str, id: &str, number: u32, body: &str) -> String {
    let put = world.call("PUT", &format!("{target}?partNumber={number}&uploadId={id}"));
    put.body(body.to_owned()).send().await.expect(200).header("etag").to_owned()
}

fn document(parts: &[(u32, &str)]) -> String {
    let parts = parts.iter().map(|(number, etag)| {
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
    });
    format!("<CompleteMultipartUpload>{}</CompleteMultipartUpload>", parts.collect::<String>())
}

async fn complete(world: &World, target: &str, id: &str, parts: &[(u32, &str)]) -> TestReply {
    world.call("POST", &format!("{target}?uploadId={id}")).body(document(parts)).send().await
}

#[tokio::test]
async fn parts_become_an_object() {
    let world = World::with_bucket().await;
    let begun = world.call("POST", "/bkt/k?uploads").header("content-type", "text/plain");
    let id = begun.header("x-amz-meta-colour", "blue").send().await.expect(200).one("UploadId");
    let second = part(&world, "/bkt/k", &id, 2, "tail").await;
    let first = part(&world, "/bkt/k", &id, 1, PART).await;
    world.get("/bkt/k").await.refused(404, "NoSuchKey");
    let done = complete(&world, "/bkt/k", &id, &[(1, &first), (2, &second)]).await.expect(200);
    assert!(done.one("ETag").contains("-2"));
    assert_eq!(done.one("Location"), "http://127.0.0.1:9000/bkt/k");
    let got = world.get("/bkt/k").await.expect(200);
    assert_eq!(got.text(), format!("{PART}tail"));
    assert_eq!(got.header("content-type"), "text/plain");
    assert_eq!(got.header("x-amz-meta-colour"), "blue");
    let tail = world.get("/bkt/k?partNumber=2").await.expect(206);
    assert_eq!((tail.text().as_str(), tail.header("x-amz-mp-parts-count")), ("tail", "2"));
    assert_eq!(tail.header("content-range"), "bytes 16-19/20");
    world.get("/bkt/k?partNumber=3").await.refused(416, "InvalidPartNumber");
    // A retry gets the same reply. Other parts are no retry.
    complete(&world, "/bkt/k", &id, &[(1, &first), (2, &second)]).await.expect(200);
    let lists: [&[(u32, &str)]; 3] =
        [&[(1, &first)], &[(2, &second)], &[(1, &first), (3, &second), (4, &first)]];
    for others in lists {
        complete(&world, "/bkt/k", &id, others).await.refused(404, "NoSuchUpload");
    }
    let again = world.call("POST", &format!("/bkt/k?uploadId={id}"));
    let again = again.header("if-none-match", "*").body(document(&[(1, &first), (2, &second)]));
    again.send().await.expect(200);
}

#[tokio::test]
async fn a_complete_must_name_existing_parts() {
    let world = World::with_bucket().await;
    let id = begin(&world, "/bkt/k").await;
    let first = part(&world, "/bkt/k", &id, 1, "small").await;
    let second = part(&world, "/bkt/k", &id, 2, "small").await;
    let done = |parts: Vec<(u32, String)>| {
        let (world, id) = (&world, &id);
        async move {
            let parts: Vec<(u32, &str)> =
                parts.iter().map(|(number, etag)| (*number, etag.as_str())).collect();
            complete(world, "/bkt/k", id, &parts).await
        }
    };
    done(vec![(1, first.clone()), (2, second.clone())]).await.refused(400, "EntityTooSmall");
    done(vec![(2, second.clone()), (1, first.clone())]).await.refused(400, "InvalidPartOrder");
    done(vec![(3, first.clone())]).await.refused(400, "InvalidPart");
    done(vec![(1, "\"0123\"".into())]).await.refused(400, "InvalidPart");
    done(vec![]).await.refused(400, "MalformedXML");
    done(vec![(10_001, first.clone())]).await.refused(400, "InvalidArgument");
    let nobody = "f".repeat(32);
    complete(&world, "/bkt/k", &nobody, &[(1, &first)]).await.refused(404, "NoSuchUpload");
    complete(&world, "/bkt/k", "nonsense", &[(1, &first)]).await.refused(404, "NoSuchUpload");
    done(vec![(1, first)]).await.expect(200);
}

#[tokio::test]
async fn a_complete_keeps_its_conditions() {
    let world = World::with_bucket().await;
    world.put("/bkt/k", "old").await;
    let id = begin(&world, "/bkt/k").await;
    let etag = part(&world, "/bkt/k", &id, 1, "new").await;
    let target = format!("/bkt/k?uploadId={id}");
    let complete = || world.call("POST", &target).body(document(&[(1, &etag)]));
    complete().header("if-none-match", "*").send().await.refused(412, "PreconditionFailed");
    assert_eq!(world.get("/bkt/k").await.text(), "old");
    complete().send().await.expect(200);
    assert_eq!(world.get("/bkt/k").await.text(), "new");
}

#[tokio::test]
async fn parts_are_listed() {
    let world = World::with_bucket().await;
    let id = begin(&world, "/bkt/k").await;
    for number in [1, 2, 3] {
        part(&world, "/bkt/k", &id, number, PART).await;
    }
    let page = world.get(&format!("/bkt/k?uploadId={id}&max-parts=2")).await.expect(200);
    assert_eq!(page.all("PartNumber"), ["1", "2"]);
    assert_eq!(
        (page.one("IsTruncated"), page.one("NextPartNumberMarker")),
        ("true".into(), "2".into())
    );
    let page = world.get(&format!("/bkt/k?uploadId={id}&part-number-marker=2")).await.expect(200);
    assert_eq!((page.all("PartNumber"), page.all("Size")), (vec!["3".into()], vec!["16".into()]));
    world.get(&format!("/bkt/k?uploadId={}", "0".repeat(32))).await.refused(404, "NoSuchUpload");
}

#[tokio::test]
async fn uploads_are_listed_and_aborted() {
    let world = World::with_bucket().await;
    let first = begin(&world, "/bkt/a").await;
    let second = begin(&world, "/bkt/d/b").await;
    let page = world.get("/bkt?uploads").await.expect(200);
    assert_eq!(page.all("UploadId"), [first.clone(), second.clone()]);
    let page = world.get("/bkt?uploads&max-uploads=1").await.expect(200);
    assert_eq!(
        (page.one("NextKeyMarker"), page.one("NextUploadIdMarker")),
        ("a".into(), first.clone())
    );
    let page = world.get(&format!("/bkt?uploads&key-marker=a&upload-id-marker={first}")).await;
    assert_eq!(page.all("UploadId"), [second]);
    let page = world.get("/bkt?uploads&delimiter=%2F").await.expect(200);
    assert_eq!(page.all("CommonPrefixes"), ["<Prefix>d/</Prefix>"]);
    world.call("DELETE", &format!("/bkt/a?uploadId={first}")).send().await.expect(204);
    world
        .call("PUT", &format!("/bkt/a?partNumber=1&uploadId={first}"))
        .body(PART)
        .send()
        .await
        .refused(404, "NoSuchUpload");
    assert_eq!(world.get("/bkt?uploads").await.all("UploadId").len(), 1);
}

#[tokio::test]
async fn parts_are_numbered_and_unconditional() {
    let world = World::with_bucket().await;
    let id = begin(&world, "/bkt/k").await;
    for number in [0, 10_001] {
        let put = world.call("PUT", &format!("/bkt/k?partNumber={number}&uploadId={id}")).body("x");
        put.send().await.refused(400, "InvalidArgument");
    }
    let put = world.call("PUT", &format!("/bkt/k?partNumber=1&uploadId={id}")).body("x");
    put.header("if-none-match", "*").send().await.refused(501, "NotImplemented");
}

#[tokio::test]
async fn parts_are_copied_by_range() {
    let world = World::with_bucket().await;
    world.put("/bkt/source", format!("{PART}and more")).await;
    let id = begin(&world, "/bkt/k").await;
    let copy = |number: u32, range: Option<&'static str>| {
        let call = world.call("PUT", &format!("/bkt/k?partNumber={number}&uploadId={id}"));
        let call = call.header("x-amz-copy-source", "/bkt/source");
        match range {
            Some(range) => call.header("x-amz-copy-source-range", range).send(),
            None => call.send(),
        }
    };
    let first = copy(1, None).await.expect(200).one("ETag").replace("&quot;", "\"");
    let second = copy(2, Some("bytes=16-18")).await.expect(200).one("ETag").replace("&quot;", "\"");
    copy(3, Some("bytes=16-99")).await.refused(416, "InvalidRange");
    copy(3, Some("bytes=16-")).await.refused(400, "InvalidArgument");
    complete(&world, "/bkt/k", &id, &[(1, &first), (2, &second)]).await.expect(200);
    assert_eq!(world.get("/bkt/k").await.text(), format!("{PART}and moreand"));
}

/// Uploads a part with its checksum, and returns the entity tag and the checksum.
async fn summed(world: &World, id: &str, number: u32, body: &str) -> (String, [u8; 4]) {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, body.as_bytes());
    let crc = u32::try_from(crc).unwrap().to_be_bytes();
    let put = world.call("PUT", &format!("/bkt/k?partNumber={number}&uploadId={id}"));
    let put = put.header("x-amz-checksum-crc32", &STANDARD.encode(crc)).body(body.to_owned());
    let put = put.send().await.expect(200);
    assert_eq!(put.header("x-amz-checksum-crc32"), STANDARD.encode(crc));
    (put.header("etag").to_owned(), crc)
}

/// Default of SDKs: a CRC of each part, and a checksum of these CRCs for the whole.
#[tokio::test]
async fn a_composite_checksum_covers_those_of_the_parts() {
    let world = World::with_bucket().await;
    let begun = world.call("POST", "/bkt/k?uploads").header("x-amz-checksum-algorithm", "CRC32");
    let begun = begun.send().await.expect(200);
    assert_eq!(begun.header("x-amz-checksum-type"), "COMPOSITE");
    let id = begun.one("UploadId");
    let (first, crc_first) = summed(&world, &id, 1, PART).await;
    let (second, crc_second) = summed(&world, &id, 2, "tail").await;
    let named = |crcs: &[[u8; 4]]| {
        crcs.iter().fold(document(&[(1, &first), (2, &second)]), |document, crc| {
            let crc = STANDARD.encode(crc);
            let with_crc = format!("</ETag><ChecksumCRC32>{crc}</ChecksumCRC32></Part>");
            document.replacen("</ETag></Part>", &with_crc, 1)
        })
    };
    let complete = |body: String| world.call("POST", &format!("/bkt/k?uploadId={id}")).body(body);
    complete(named(&[[0; 4], crc_second])).send().await.refused(400, "InvalidPart");
    // A composite checksum is computed from the checksums that the client lists.
    complete(named(&[crc_first])).send().await.refused(400, "InvalidRequest");
    let named = named(&[crc_first, crc_second]);
    let of_parts = [crc_first, crc_second].concat();
    let whole = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &of_parts);
    let whole = STANDARD.encode(u32::try_from(whole).unwrap().to_be_bytes());
    let wrong = complete(named.clone()).header("x-amz-checksum-crc32", "AAAAAA==-2").send();
    wrong.await.refused(400, "BadDigest");
    let whole = format!("{whole}-2");
    let done = complete(named).header("x-amz-checksum-crc32", &whole).send().await;
    let done = done.expect(200);
    assert_eq!(
        (done.one("ChecksumCRC32"), done.one("ChecksumType")),
        (whole.clone(), "COMPOSITE".into())
    );
    let got = world.call("GET", "/bkt/k").header("x-amz-checksum-mode", "ENABLED").send().await;
    assert_eq!(got.header("x-amz-checksum-crc32"), whole);
    assert_eq!(got.header("x-amz-checksum-type"), "COMPOSITE");
    let head = world.call("HEAD", "/bkt/k").header("x-amz-checksum-mode", "ENABLED").send().await;
    assert_eq!(head.header("x-amz-checksum-crc32"), whole);
}

#[tokio::test]
async fn an_upload_carries_the_checksum_that_it_announced() {
    let world = World::with_bucket().await;
    let begun =
        world.call("POST", "/bkt/k?uploads").header("x-amz-checksum-algorithm", "CRC64NVME");
    let begun = begun.send().await.expect(200);
    assert_eq!(begun.header("x-amz-checksum-type"), "FULL_OBJECT");
    let id = begun.one("UploadId");
    let put = world.call("PUT", &format!("/bkt/k?partNumber=1&uploadId={id}"));
    let put = put.body(PART).send().await.expect(200);
    let checksum = put.header("x-amz-checksum-crc64nvme").to_owned();
    complete(&world, "/bkt/k", &id, &[(1, put.header("etag"))]).await.expect(200);
    let got = world.call("GET", "/bkt/k").header("x-amz-checksum-mode", "ENABLED").send().await;
    assert_eq!(got.header("x-amz-checksum-crc64nvme"), checksum);
    let refused =
        world.call("POST", "/bkt/k?uploads").header("x-amz-checksum-algorithm", "CRC64NVME");
    let refused = refused.header("x-amz-checksum-type", "COMPOSITE").send().await;
    refused.refused(400, "InvalidRequest");
}
