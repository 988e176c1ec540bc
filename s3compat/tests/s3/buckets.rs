//! Buckets: creation, lookup, listing, deletion and ownership.

use crate::world::World;

#[tokio::test]
async fn a_bucket_is_made_found_and_removed() {
    let world = World::new();
    let made = world.call("PUT", "/bkt").send().await.expect(200);
    assert_eq!(made.header("location"), "/bkt");
    let head = world.call("HEAD", "/bkt").send().await.expect(200);
    assert_eq!(head.header("x-amz-bucket-region"), "us-east-1");
    let again = world.call("PUT", "/bkt").send().await.expect(200);
    assert_eq!(again.header("location"), "/bkt");
    let other = world.call("PUT", "/bkt").header("x-amz-object-ownership", "ObjectWriter");
    other.send().await.refused(409, "BucketAlreadyOwnedByYou");
    world.call("DELETE", "/bkt").send().await.expect(204);
    world.call("HEAD", "/bkt").send().await.expect(404);
    world.call("DELETE", "/bkt").send().await.refused(404, "NoSuchBucket");
    world.get("/bkt/k").await.refused(404, "NoSuchBucket");
}

#[tokio::test]
async fn a_bucket_with_an_object_stays() {
    let world = World::with_bucket().await;
    world.put("/bkt/k", "x").await;
    world.call("DELETE", "/bkt").send().await.refused(409, "BucketNotEmpty");
    world.call("DELETE", "/bkt/k").send().await.expect(204);
    world.call("DELETE", "/bkt").send().await.expect(204);
}

#[tokio::test]
async fn names_keep_to_the_rules() {
    let world = World::new();
    for name in [
        "ab",
        "Upper",
        "under_score",
        "192.168.0.1",
        "two..dots",
        "-dash",
        "dot.-dash",
        "dash-.dot",
        "xn--puny",
    ] {
        let made = world.call("PUT", &format!("/{name}")).send().await;
        made.refused(400, "InvalidBucketName");
    }
    world.call("PUT", &format!("/{}", "a".repeat(63))).send().await.expect(200);
    world
        .call("PUT", &format!("/{}", "a".repeat(64)))
        .send()
        .await
        .refused(400, "InvalidBucketName");
}

#[tokio::test]
async fn a_location_is_this_region_or_none() {
    let world = World::new();
    let configuration = |region: &str| {
        format!(
            "<CreateBucketConfiguration><LocationConstraint>{region}</LocationConstraint>\
             </CreateBucketConfiguration>"
        )
    };
    let elsewhere = world.call("PUT", "/bb1").body(configuration("mars-1")).send().await;
    elsewhere.refused(400, "IllegalLocationConstraintException");
    world.call("PUT", "/bb2").body(configuration("us-east-1")).send().await.expect(200);
    let location = world.get("/bb2?location").await.expect(200);
    let text = location.text();
    assert!(text.contains("<LocationConstraint xmlns=") && !text.contains("us-east-1"), "{text}");
    world.get("/bb3?location").await.refused(404, "NoSuchBucket");
}

#[tokio::test]
async fn buckets_are_listed_page_by_page() {
    let world = World::new();
    for name in ["abc", "abd", "xyz"] {
        world.call("PUT", &format!("/{name}")).send().await.expect(200);
    }
    let all = world.get("/").await.expect(200);
    assert_eq!(all.all("Name"), ["abc", "abd", "xyz"]);
    assert_eq!(all.one("ID"), "alice");
    assert_eq!(all.all("CreationDate")[0], "2026-01-01T00:00:00.000Z");
    assert_eq!(world.get("/?prefix=ab").await.all("Name"), ["abc", "abd"]);
    let first = world.get("/?max-buckets=2").await.expect(200);
    assert_eq!(first.all("Name"), ["abc", "abd"]);
    let token = first.one("ContinuationToken");
    let second = world.get(&format!("/?continuation-token={token}&max-buckets=2")).await;
    assert_eq!(second.all("Name"), ["xyz"]);
    assert!(second.all("ContinuationToken").is_empty());
    world.get("/?continuation-token=Zm9yZ2Vk").await.refused(400, "InvalidArgument");
    world.get("/?max-buckets=0").await.refused(400, "InvalidArgument");
}

#[tokio::test]
async fn buckets_of_other_tenants_are_denied() {
    let world = World::with_bucket().await;
    world.put("/bkt/k", "x").await;
    for (method, target) in [
        ("GET", "/bkt"),
        ("GET", "/bkt/k"),
        ("PUT", "/bkt/k"),
        ("DELETE", "/bkt/k"),
        ("DELETE", "/bkt"),
        ("GET", "/bkt?uploads"),
    ] {
        world.call(method, target).by("BOB").send().await.refused(403, "AccessDenied");
    }
    world.call("HEAD", "/bkt").by("BOB").send().await.expect(403);
    world.call("PUT", "/bkt").by("BOB").send().await.refused(409, "BucketAlreadyExists");
    assert!(world.call("GET", "/").by("BOB").send().await.expect(200).all("Name").is_empty());
    world.call("PUT", "/bobs").by("BOB").send().await.expect(200);
    let theft = world.call("PUT", "/bobs/k").by("BOB").header("x-amz-copy-source", "/bkt/k");
    theft.send().await.refused(403, "AccessDenied");
    assert_eq!(world.get("/").await.all("Name"), ["bkt"]);
}

#[tokio::test]
async fn anonymous_requests_are_denied() {
    let world = World::with_bucket().await;
    world.put("/bkt/k", "x").await;
    for (method, target) in [("GET", "/"), ("GET", "/bkt"), ("GET", "/bkt/k"), ("PUT", "/bkt/k")] {
        world.call(method, target).send_unsigned().await.refused(403, "AccessDenied");
    }
    world.call("POST", "/bkt?delete").send_unsigned().await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn unsupported_operations_are_not_implemented() {
    let world = World::with_bucket().await;
    world.put("/bkt/k", "x").await;
    for (method, target) in [
        ("GET", "/bkt?inventory"),
        ("DELETE", "/bkt?versioning"),
        ("DELETE", "/bkt?acl"),
        ("PUT", "/bkt?versions"),
        ("GET", "/bkt/k?torrent"),
        ("PUT", "/bkt/k?renameObject"),
        ("PUT", "/bkt/k?versionId=3"),
        ("POST", "/bkt/k?restore"),
    ] {
        world.call(method, target).send().await.refused(501, "NotImplemented");
    }
    assert_eq!(world.get("/bkt/k").await.text(), "x");
}
