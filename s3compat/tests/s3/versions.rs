//! Versions of objects, over the wire.

use crate::world::{TestReply, World};

const ENABLED: &str = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
const SUSPENDED: &str =
    "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>";

async fn set(world: &World, document: &str) -> TestReply {
    world.call("PUT", "/bkt?versioning").body(document.to_owned()).send().await
}

async fn versioned() -> World {
    let world = World::with_bucket().await;
    set(&world, ENABLED).await.expect(200);
    world
}

async fn put(world: &World, key: &str, body: &'static str) -> String {
    world.put(&format!("/bkt/{key}"), body).await.header("x-amz-version-id").to_owned()
}

#[tokio::test]
async fn the_versioning_state_is_set_and_returned() {
    let world = World::with_bucket().await;
    assert!(world.get("/bkt?versioning").await.expect(200).all("Status").is_empty());
    assert!(!world.put("/bkt/k", "x").await.has("x-amz-version-id"));
    for (document, status) in [(ENABLED, "Enabled"), (SUSPENDED, "Suspended")] {
        set(&world, document).await.expect(200);
        assert_eq!(world.get("/bkt?versioning").await.expect(200).one("Status"), status);
    }
    let wrong = "IllegalVersioningConfigurationException";
    set(&world, "<VersioningConfiguration/>").await.refused(400, wrong);
    let on = "<VersioningConfiguration><Status>On</Status></VersioningConfiguration>";
    set(&world, on).await.refused(400, "MalformedXML");
    let mfa = "<VersioningConfiguration><Status>Enabled</Status><MfaDelete>Enabled</MfaDelete>\
               </VersioningConfiguration>";
    set(&world, mfa).await.refused(501, "NotImplemented");
    let none = world.call("PUT", "/none?versioning").body(ENABLED).send().await;
    none.refused(404, "NoSuchBucket");
}

#[tokio::test]
async fn versions_are_read_and_deleted_by_id() {
    let world = versioned().await;
    let (one, two) = (put(&world, "k", "one").await, put(&world, "k", "two").await);
    assert_ne!(one, two);
    let got = world.get("/bkt/k").await.expect(200);
    assert_eq!((got.text(), got.header("x-amz-version-id")), ("two".into(), two.as_str()));
    let got = world.get(&format!("/bkt/k?versionId={one}")).await.expect(200);
    assert_eq!((got.text(), got.header("x-amz-version-id")), ("one".into(), one.as_str()));
    let head = world.call("HEAD", &format!("/bkt/k?versionId={one}")).send().await.expect(200);
    assert_eq!(head.header("content-length"), "3");
    let deleted = world.call("DELETE", "/bkt/k").send().await.expect(204);
    assert_eq!(deleted.header("x-amz-delete-marker"), "true");
    let marker = deleted.header("x-amz-version-id").to_owned();
    let gone = world.get("/bkt/k").await;
    gone.refused(404, "NoSuchKey");
    assert_eq!(gone.header("x-amz-delete-marker"), "true");
    assert_eq!(gone.header("x-amz-version-id"), marker);
    let by_id = world.get(&format!("/bkt/k?versionId={marker}")).await;
    by_id.refused(405, "MethodNotAllowed");
    assert_eq!((by_id.header("x-amz-delete-marker"), by_id.header("allow")), ("true", "DELETE"));
    let undone = world.call("DELETE", &format!("/bkt/k?versionId={marker}")).send().await;
    assert_eq!(undone.expect(204).header("x-amz-delete-marker"), "true");
    let deleted = world.call("DELETE", &format!("/bkt/k?versionId={two}")).send().await.expect(204);
    assert_eq!(deleted.header("x-amz-version-id"), two);
    assert!(!deleted.has("x-amz-delete-marker"));
    assert_eq!(world.get("/bkt/k").await.expect(200).text(), "one");
    world.get(&format!("/bkt/k?versionId={two}")).await.refused(404, "NoSuchVersion");
    for wrong in ["1", "", "NULL"] {
        let target = format!("/bkt/k?versionId={wrong}");
        world.get(&target).await.refused(400, "InvalidArgument");
        world.call("DELETE", &target).send().await.refused(400, "InvalidArgument");
    }
    world.get("/bkt/k?versionId=null").await.refused(404, "NoSuchVersion");
}

#[tokio::test]
async fn a_listing_shows_versions_and_markers_in_pages() {
    let world = versioned().await;
    for key in ["a", "a/b", "c"] {
        put(&world, key, "first").await;
        put(&world, key, "second").await;
    }
    world.call("DELETE", "/bkt/c").send().await.expect(204);
    let all = world.get("/bkt?versions").await.expect(200);
    assert_eq!(all.all("Key"), ["c", "a", "a", "a/b", "a/b", "c", "c"]);
    assert_eq!(all.all("DeleteMarker").len(), 1);
    assert_eq!(all.all("IsLatest").iter().filter(|it| *it == "true").count(), 3);
    assert_eq!(all.one("IsTruncated"), "false");
    let folded = world.get("/bkt?versions&delimiter=%2F").await.expect(200);
    assert_eq!(folded.all("Version").len() + folded.all("DeleteMarker").len(), 5);
    assert_eq!(folded.all("CommonPrefixes"), ["<Prefix>a/</Prefix>"]);
    let mut target = "/bkt?versions&max-keys=2".to_owned();
    let mut ids = Vec::new();
    loop {
        let page = world.get(&target).await.expect(200);
        let page_ids = page.all("VersionId");
        assert!(page_ids.len() <= 2);
        ids.extend(page_ids);
        if page.one("IsTruncated") == "false" {
            break;
        }
        let key = page.one("NextKeyMarker").replace('/', "%2F");
        let version = page.one("NextVersionIdMarker");
        target = format!("/bkt?versions&max-keys=2&key-marker={key}&version-id-marker={version}");
    }
    let mut expected = all.all("VersionId");
    expected.sort();
    ids.sort();
    assert_eq!(ids, expected);
    world.get("/bkt?versions&version-id-marker=null").await.refused(400, "InvalidArgument");
    world.call("DELETE", "/bkt").send().await.refused(409, "BucketNotEmpty");
}

#[tokio::test]
async fn many_are_deleted_by_id_or_marked() {
    let world = versioned().await;
    let (one, two) = (put(&world, "k", "one").await, put(&world, "k", "two").await);
    let object = |key: &str, version: &str| {
        let version = match version {
            "" => String::new(),
            id => format!("<VersionId>{id}</VersionId>"),
        };
        format!("<Object><Key>{key}</Key>{version}</Object>")
    };
    let body = format!(
        "<Delete>{}{}{}</Delete>",
        object("k", &one),
        object("other", ""),
        object("k", "wrong")
    );
    let deleted = world.call("POST", "/bkt?delete").body(body).send().await.expect(200);
    let told = deleted.all("Deleted");
    assert_eq!(told.len(), 2);
    assert!(told[0].contains(&one) && !told[0].contains("DeleteMarker"), "{}", told[0]);
    assert!(told[1].contains("<DeleteMarker>true</DeleteMarker>"), "{}", told[1]);
    assert_eq!(deleted.one("Code"), "InvalidArgument");
    let marker = deleted.one("DeleteMarkerVersionId");
    let body = format!("<Delete>{}{}</Delete>", object("other", &marker), object("k", &two));
    let deleted = world.call("POST", "/bkt?delete").body(body).send().await.expect(200);
    assert_eq!(deleted.one("DeleteMarkerVersionId"), marker);
    assert!(world.get("/bkt?versions").await.expect(200).all("VersionId").is_empty());
    world.call("DELETE", "/bkt").send().await.expect(204);
}

#[tokio::test]
async fn while_suspended_there_is_one_null_version() {
    let world = World::with_bucket().await;
    world.put("/bkt/k", "before").await;
    set(&world, ENABLED).await.expect(200);
    assert_eq!(world.get("/bkt/k").await.header("x-amz-version-id"), "null");
    let kept = put(&world, "k", "kept").await;
    assert_eq!(world.get("/bkt/k?versionId=null").await.expect(200).text(), "before");
    set(&world, SUSPENDED).await.expect(200);
    for text in ["null one", "null two"] {
        let written = world.call("PUT", "/bkt/k").body(text).send().await.expect(200);
        assert!(!written.has("x-amz-version-id"), "a write to a suspended bucket names no version");
    }
    let ids = world.get("/bkt?versions").await.all("VersionId");
    assert_eq!(ids, ["null", &kept]);
    let deleted = world.call("DELETE", "/bkt/k").send().await.expect(204);
    assert_eq!(deleted.header("x-amz-version-id"), "null");
    assert_eq!(world.get("/bkt?versions").await.all("VersionId"), ["null", &kept]);
    world.call("DELETE", "/bkt/k?versionId=null").send().await.expect(204);
    assert_eq!(world.get("/bkt/k").await.expect(200).text(), "kept");
}

#[tokio::test]
async fn copies_tags_and_attributes_are_of_the_version_that_is_named() {
    let world = versioned().await;
    let one = put(&world, "k", "one").await;
    put(&world, "k", "three").await;
    let source = format!("/bkt/k?versionId={one}");
    let copy = world.call("PUT", "/bkt/copy").header("x-amz-copy-source", &source).send().await;
    assert_eq!(copy.expect(200).header("x-amz-copy-source-version-id"), one);
    assert_eq!(world.get("/bkt/copy").await.text(), "one");
    // The id of the current version is returned, too.
    let current = world.call("HEAD", "/bkt/k").send().await.expect(200);
    let current = current.header("x-amz-version-id");
    let copy = world.call("PUT", "/bkt/copy").header("x-amz-copy-source", "/bkt/k").send().await;
    assert_eq!(copy.expect(200).header("x-amz-copy-source-version-id"), current);
    let id = world.call("POST", "/bkt/parts?uploads").send().await.expect(200).one("UploadId");
    let part = world.call("PUT", &format!("/bkt/parts?partNumber=1&uploadId={id}"));
    let part = part.header("x-amz-copy-source", "/bkt/k").send().await.expect(200);
    assert_eq!(part.header("x-amz-copy-source-version-id"), current);
    // Restores a version: a copy onto its own key makes it current.
    let back = world.call("PUT", "/bkt/k").header("x-amz-copy-source", &source).send().await;
    assert_ne!(back.expect(200).header("x-amz-version-id"), one);
    assert_eq!(world.get("/bkt/k").await.text(), "one");
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>";
    let tagged = world.call("PUT", &format!("{source}&tagging")).body(tags).send().await;
    assert_eq!(tagged.expect(200).header("x-amz-version-id"), one);
    assert!(world.get("/bkt/k?tagging").await.expect(200).all("Key").is_empty());
    assert_eq!(world.get(&format!("{source}&tagging")).await.expect(200).all("Key"), ["a"]);
    let attributes = world.call("GET", &format!("{source}&attributes"));
    let attributes = attributes.header("x-amz-object-attributes", "ObjectSize").send().await;
    assert_eq!(attributes.expect(200).one("ObjectSize"), "3");
    world.get(&format!("{source}&acl")).await.expect(200);
    let marker = world.call("DELETE", "/bkt/k").send().await;
    let marker = format!("/bkt/k?versionId={}", marker.header("x-amz-version-id"));
    let copy = |source: &str| world.call("PUT", "/bkt/x").header("x-amz-copy-source", source);
    copy("/bkt/k").send().await.refused(404, "NoSuchKey");
    copy(&marker).send().await.refused(400, "InvalidRequest");
}

#[tokio::test]
async fn part_checksums_are_returned() {
    let world = versioned().await;
    let begun = world
        .call("POST", "/bkt/k?uploads")
        .header("x-amz-checksum-algorithm", "CRC32C")
        .header("x-amz-checksum-type", "FULL_OBJECT");
    let id = begun.send().await.expect(200).one("UploadId");
    let mut parts = Vec::new();
    let mut sums = Vec::new();
    for (number, body) in [(1, "sixteen bytes it."), (2, "the rest")] {
        let target = format!("/bkt/k?partNumber={number}&uploadId={id}");
        let part = world.put(&target, body).await;
        sums.push(part.header("x-amz-checksum-crc32c").to_owned());
        let etag = part.header("etag");
        parts.push(format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"));
    }
    let body = format!("<CompleteMultipartUpload>{}</CompleteMultipartUpload>", parts.concat());
    let done = world.call("POST", &format!("/bkt/k?uploadId={id}")).body(body).send().await;
    let version = done.expect(200).header("x-amz-version-id").to_owned();
    put(&world, "k", "newer").await;
    let target = format!("/bkt/k?attributes&versionId={version}");
    let told = world.call("GET", &target).header("x-amz-object-attributes", "ObjectParts,Checksum");
    let told = told.send().await.expect(200);
    assert_eq!(told.all("ChecksumCRC32C")[1..], sums, "after that of the whole");
}

#[tokio::test]
async fn tags_of_an_object_from_before_versioning_are_of_the_null_version() {
    let world = World::with_bucket().await;
    world.put("/bkt/k", "before").await;
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>";
    let tagged = world.call("PUT", "/bkt/k?tagging").body(tags).send().await.expect(200);
    assert!(!tagged.has("x-amz-version-id"), "the bucket has no versions");
    for state in [SUSPENDED, ENABLED] {
        set(&world, state).await.expect(200);
        let tagged = world.call("PUT", "/bkt/k?tagging").body(tags).send().await.expect(200);
        assert_eq!(tagged.header("x-amz-version-id"), "null");
        let untagged = world.call("DELETE", "/bkt/k?tagging").send().await.expect(204);
        assert_eq!(untagged.header("x-amz-version-id"), "null");
    }
}

#[tokio::test]
async fn a_delete_marker_is_no_source_of_a_part_with_or_without_a_range() {
    let world = versioned().await;
    put(&world, "k", "one").await;
    let marker = world.call("DELETE", "/bkt/k").send().await.expect(204);
    let marker = format!("/bkt/k?versionId={}", marker.header("x-amz-version-id"));
    let id = world.call("POST", "/bkt/parts?uploads").send().await.expect(200).one("UploadId");
    for range in ["bytes=0-0", ""] {
        let copy = |source: &str| {
            let part = world.call("PUT", &format!("/bkt/parts?partNumber=1&uploadId={id}"));
            let part = part.header("x-amz-copy-source", source);
            if range.is_empty() { part } else { part.header("x-amz-copy-source-range", range) }
        };
        copy(&marker).send().await.refused(400, "InvalidRequest");
        copy("/bkt/k").send().await.refused(404, "NoSuchKey");
    }
}

#[tokio::test]
async fn a_condition_that_needs_an_object_fails_for_an_unknown_version() {
    let world = World::with_bucket().await;
    world.put("/bkt/k", "kept").await;
    let target = format!("/bkt/k?versionId={}", "0".repeat(48));
    for _ in ["without versions", "with versions"] {
        let any = world.call("DELETE", &target).header("if-match", "*").send().await;
        any.refused(412, "PreconditionFailed");
        set(&world, ENABLED).await.expect(200);
    }
    let other = world.call("DELETE", &target).header("if-match", "\"x\"").send().await;
    other.expect(204);
    assert_eq!(world.get("/bkt/k").await.expect(200).text(), "kept");
}
