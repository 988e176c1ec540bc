//! Buckets with opaque ETags: no MD5s, and conditions, parts, copies and versions as ever.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};

use crate::world::{TestReply, World};

const ETAGS: &str = "x-martlet-etags";
const PART: &str = "sixteen bytes...";

/// A world with the buckets `bkt`, which has opaque ETags, and `plain`.
async fn world() -> World {
    let world = World::new();
    let made = world.call("PUT", "/bkt").header(ETAGS, "opaque").send().await.expect(200);
    assert_eq!(made.header(ETAGS), "opaque");
    world.call("PUT", "/plain").send().await.expect(200);
    world
}

fn is_opaque(etag: &str) -> bool {
    let digits = etag.trim_matches('"').strip_prefix("opaque-");
    digits.is_some_and(|it| it.len() == 32 && it.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn md5_of(body: &str) -> String {
    format!("\"{}\"", hex::encode(Md5::digest(body)))
}

async fn etag_of(world: &World, target: &str) -> String {
    world.call("HEAD", target).send().await.expect(200).header("etag").to_owned()
}

#[tokio::test]
async fn a_bucket_has_the_kind_that_its_creation_names() {
    let world = world().await;
    for (bucket, kind) in [("/bkt", "opaque"), ("/plain", "md5")] {
        let head = world.call("HEAD", bucket).send().await.expect(200);
        assert_eq!(head.header(ETAGS), kind);
    }
    let sha = world.call("PUT", "/other").header(ETAGS, "sha256").send().await;
    sha.refused(400, "InvalidArgument");
    let put = world.call("PUT", "/bkt/k").header(ETAGS, "opaque").body("x").send().await;
    put.refused(501, "NotImplemented");
    let again = world.call("PUT", "/bkt").header(ETAGS, "md5").send().await;
    again.refused(409, "BucketAlreadyOwnedByYou");
}

#[tokio::test]
async fn each_write_has_an_etag_of_its_own_which_conditions_compare() {
    let world = world().await;
    let first = world.put("/bkt/k", "body").await.header("etag").to_owned();
    let second = world.put("/bkt/k", "body").await.header("etag").to_owned();
    assert!(is_opaque(&first) && is_opaque(&second) && first != second, "{first} {second}");
    assert_eq!(etag_of(&world, "/bkt/k").await, second);
    let listed = world.get("/bkt?list-type=2").await.expect(200);
    assert_eq!(listed.one("ETag").trim_matches('"'), second.trim_matches('"'));
    let conditional = |name: &'static str, etag: &str| {
        world.call("PUT", "/bkt/k").header(name, etag).body("new").send()
    };
    conditional("if-match", &first).await.refused(412, "PreconditionFailed");
    let third = conditional("if-match", &second).await.expect(200).header("etag").to_owned();
    let not_modified = world.call("GET", "/bkt/k").header("if-none-match", &third).send().await;
    assert_eq!(not_modified.status, 304);
    world.call("GET", "/bkt/k").header("if-match", &second).send().await.expect(412);
    assert_eq!(etag_of(&world, "/bkt/k").await, third);
}

#[tokio::test]
async fn an_md5_that_the_client_sends_is_verified() {
    let world = world().await;
    let put = |md5: &str| {
        let digest = STANDARD.encode(Md5::digest(md5));
        world.call("PUT", "/bkt/k").header("content-md5", &digest).body("body").send()
    };
    put("other").await.refused(400, "BadDigest");
    let put = put("body").await.expect(200);
    assert!(is_opaque(put.header("etag")), "{}", put.header("etag"));
    let digest = STANDARD.encode(Md5::digest("body"));
    let put = world.call("PUT", "/bkt/k").header("x-amz-checksum-md5", &digest).body("body");
    assert_eq!(put.send().await.expect(200).header("x-amz-checksum-md5"), digest);
    let put = world.call("PUT", "/bkt/k").header("x-amz-checksum-md5", &digest).body("other");
    put.send().await.refused(400, "BadDigest");
}

#[tokio::test]
async fn a_checksum_is_stored_as_in_any_bucket() {
    let world = world().await;
    let long = "0123456789".repeat(30_000);
    for body in ["short", &long] {
        let put = |target| world.put(target, body.to_owned());
        let (opaque, plain) = (put("/bkt/k").await, put("/plain/k").await);
        let name = "x-amz-checksum-crc64nvme";
        assert_eq!(opaque.header(name), plain.header(name));
        assert_eq!(plain.header("etag"), md5_of(body));
        assert_eq!(world.get("/bkt/k").await.expect(200).text(), body);
    }
}

async fn begin(world: &World) -> String {
    world.call("POST", "/bkt/m?uploads").send().await.expect(200).one("UploadId")
}

async fn part(world: &World, id: &str, number: u32, body: &str) -> String {
    let put = world.call("PUT", &format!("/bkt/m?partNumber={number}&uploadId={id}"));
    put.body(body.to_owned()).send().await.expect(200).header("etag").to_owned()
}

async fn complete(world: &World, id: &str, parts: &[&str]) -> TestReply {
    let part = |(n, etag): (u32, &&str)| {
        format!("<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag></Part>")
    };
    let parts: Vec<String> = (1..).zip(parts).map(part).collect();
    let parts = parts.concat();
    let document = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    world.call("POST", &format!("/bkt/m?uploadId={id}")).body(document).send().await
}

#[tokio::test]
async fn an_upload_keeps_its_kind_to_its_end() {
    let world = world().await;
    let id = begin(&world).await;
    let first = part(&world, &id, 1, PART).await;
    let replaced = part(&world, &id, 2, "tail").await;
    let second = part(&world, &id, 2, "tail").await;
    assert!(is_opaque(&first) && is_opaque(&second) && replaced != second);
    let listed = world.get(&format!("/bkt/m?uploadId={id}")).await.expect(200);
    let shown: Vec<String> = listed.all("ETag");
    let shown: Vec<&str> = shown.iter().map(|etag| etag.trim_matches('"')).collect();
    assert_eq!(shown, [first.trim_matches('"'), second.trim_matches('"')]);
    complete(&world, &id, &[&first, &replaced]).await.refused(400, "InvalidPart");
    complete(&world, &id, &[&first, &md5_of("tail")]).await.refused(400, "InvalidPart");
    let done = complete(&world, &id, &[&first, &second]).await.expect(200).one("ETag");
    let whole = done.trim_matches('"').strip_suffix("-2").unwrap().to_owned();
    assert!(is_opaque(&whole), "{done}");
    // A repeated request gets the same reply. Other parts are no repetition.
    let again = complete(&world, &id, &[&first, &second]).await.expect(200);
    assert_eq!(again.one("ETag"), done);
    complete(&world, &id, &[&second, &first]).await.refused(404, "NoSuchUpload");
    let got = world.get("/bkt/m").await.expect(200);
    assert_eq!(got.text(), format!("{PART}tail"));
    assert_eq!(got.header("etag").trim_matches('"'), done.trim_matches('"'));
    let tail = world.get("/bkt/m?partNumber=2").await.expect(206);
    assert_eq!((tail.text().as_str(), tail.header("x-amz-mp-parts-count")), ("tail", "2"));
}

#[tokio::test]
async fn a_composite_checksum_ends_with_the_number_of_parts() {
    let world = world().await;
    let begun = world.call("POST", "/bkt/m?uploads").header("x-amz-checksum-algorithm", "SHA256");
    let id = begun.send().await.expect(200).one("UploadId");
    let mut parts = Vec::new();
    for (number, body) in [(1, PART), (2, "tail")] {
        let sum = STANDARD.encode(sha2::Sha256::digest(body));
        let put = world.call("PUT", &format!("/bkt/m?partNumber={number}&uploadId={id}"));
        let put = put.header("x-amz-checksum-sha256", &sum).body(body).send().await.expect(200);
        let etag = put.header("etag");
        parts.push(format!(
            "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>\
             <ChecksumSHA256>{sum}</ChecksumSHA256></Part>"
        ));
    }
    let parts = parts.concat();
    let document = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    let end = world.call("POST", &format!("/bkt/m?uploadId={id}")).body(document);
    let done = end.send().await.expect(200);
    assert!(done.one("ChecksumSHA256").ends_with("-2"), "{}", done.text());
}

#[tokio::test]
async fn a_copy_has_the_kind_of_its_bucket() {
    let world = world().await;
    let opaque = world.put("/bkt/k", "body").await.header("etag").to_owned();
    world.put("/plain/k", "body").await;
    let copy = |from: &'static str, to: &'static str| {
        world.call("PUT", to).header("x-amz-copy-source", from).send()
    };
    copy("/bkt/k", "/plain/copy").await.expect(200);
    assert_eq!(etag_of(&world, "/plain/copy").await, md5_of("body"));
    for (from, to) in [("/plain/k", "/bkt/of-plain"), ("/bkt/k", "/bkt/of-opaque")] {
        copy(from, to).await.expect(200);
        let etag = etag_of(&world, to).await;
        assert!(is_opaque(&etag) && etag != opaque, "{etag}");
        assert_eq!(world.get(to).await.expect(200).text(), "body");
    }
}

#[tokio::test]
async fn versions_have_etags_of_their_own() {
    let world = world().await;
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    world.call("PUT", "/bkt?versioning").body(enabled).send().await.expect(200);
    let (first, second) = (world.put("/bkt/k", "body").await, world.put("/bkt/k", "body").await);
    assert_ne!(first.header("etag"), second.header("etag"));
    for put in [first, second] {
        let version = put.header("x-amz-version-id");
        let target = format!("/bkt/k?versionId={version}");
        assert_eq!(etag_of(&world, &target).await, put.header("etag"));
    }
}
