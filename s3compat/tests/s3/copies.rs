//! Copies: whole objects, new metadata, conditions, and copies onto themselves.

use crate::world::{TestReply, World};

async fn copy(world: &World, source: &str, target: &str, headers: &[(&str, &str)]) -> TestReply {
    let mut call = world.call("PUT", target).header("x-amz-copy-source", source);
    for (name, value) in headers {
        call = call.header(name, value);
    }
    call.send().await
}

async fn described() -> World {
    let world = World::with_bucket().await;
    let put = world.call("PUT", "/bkt/a%20b").header("content-type", "text/plain");
    let put = put.header("x-amz-meta-colour", "blue").header("x-amz-tagging", "t=1").body("hello");
    put.send().await.expect(200);
    world
}

#[tokio::test]
async fn a_copy_takes_bytes_description_and_tags_along() {
    let world = described().await;
    let copied = copy(&world, "/bkt/a%20b", "/bkt/copy", &[]).await.expect(200);
    assert_eq!(copied.one("LastModified"), "2026-01-01T00:00:00.000Z");
    let got = world.get("/bkt/copy").await.expect(200);
    assert_eq!(got.text(), "hello");
    assert_eq!(got.header("content-type"), "text/plain");
    assert_eq!(got.header("x-amz-meta-colour"), "blue");
    assert_eq!(got.header("x-amz-tagging-count"), "1");
}

#[tokio::test]
async fn a_copy_may_be_described_anew() {
    let world = described().await;
    let headers = [
        ("x-amz-metadata-directive", "REPLACE"),
        ("content-type", "image/png"),
        ("x-amz-tagging-directive", "REPLACE"),
        ("x-amz-tagging", "u=2"),
    ];
    copy(&world, "bkt/a%20b", "/bkt/copy", &headers).await.expect(200);
    let got = world.get("/bkt/copy").await.expect(200);
    assert_eq!(got.header("content-type"), "image/png");
    assert!(!got.has("x-amz-meta-colour"));
    assert_eq!(world.get("/bkt/copy?tagging").await.all("Key"), ["u"]);
    let wrong = [("x-amz-metadata-directive", "MERGE")];
    copy(&world, "bkt/a%20b", "/bkt/copy", &wrong).await.refused(400, "InvalidArgument");
}

#[tokio::test]
async fn a_copy_onto_itself_must_change_something() {
    let world = described().await;
    copy(&world, "bkt/a%20b", "/bkt/a%20b", &[]).await.refused(400, "InvalidRequest");
    let headers = [("x-amz-metadata-directive", "REPLACE"), ("x-amz-meta-colour", "red")];
    copy(&world, "bkt/a%20b", "/bkt/a%20b", &headers).await.expect(200);
    let got = world.get("/bkt/a%20b").await.expect(200);
    assert_eq!((got.text().as_str(), got.header("x-amz-meta-colour")), ("hello", "red"));
}

#[tokio::test]
async fn conditions_of_both_ends_are_kept() {
    let world = described().await;
    let etag = world.call("HEAD", "/bkt/a%20b").send().await.header("etag").to_owned();
    let source = "bkt/a%20b";
    let if_match = "x-amz-copy-source-if-match";
    let if_none_match = "x-amz-copy-source-if-none-match";
    let refused = copy(&world, source, "/bkt/copy", &[(if_match, "\"other\"")]).await;
    refused.refused(412, "PreconditionFailed");
    let refused = copy(&world, source, "/bkt/copy", &[(if_none_match, &etag)]).await;
    refused.refused(412, "PreconditionFailed");
    copy(&world, source, "/bkt/copy", &[(if_match, &etag)]).await.expect(200);
    let taken = copy(&world, source, "/bkt/copy", &[("if-none-match", "*")]).await;
    taken.refused(412, "PreconditionFailed");
    copy(&world, source, "/bkt/copy", &[("if-match", &etag)]).await.expect(200);
}

#[tokio::test]
async fn a_source_must_be_there() {
    let world = described().await;
    copy(&world, "bkt/nothing", "/bkt/copy", &[]).await.refused(404, "NoSuchKey");
    copy(&world, "nobody/nothing", "/bkt/copy", &[]).await.refused(404, "NoSuchBucket");
    let version = copy(&world, "bkt/k?versionId=3", "/bkt/copy", &[]).await;
    version.refused(400, "InvalidArgument");
    assert_eq!(copy(&world, "nonsense", "/bkt/copy", &[]).await.status, 400);
}
