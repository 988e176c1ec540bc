//! Storage policies: chosen for a new bucket, reported for it, and named by storage classes.

use std::sync::Arc;

use martlet_protocol::{PolicyId, Redundancy};
use martlet_ring::{Builder, NewDevice, Node, RebalanceContext, Ring, RingSettings};

use crate::world::World;

const POLICY: &str = "x-martlet-storage-policy";
const CLASS: &str = "x-amz-storage-class";
/// More than fits into an entry.
const LONG: &[u8] = &[7; 20_000];

/// A second policy over the same device, called `cold-ec`.
fn cold(world_device: u32) -> Arc<Ring> {
    let settings = RingSettings {
        policy: PolicyId(1),
        policy_name: "cold-ec".to_owned(),
        redundancy: Redundancy::Replicated,
        part_power: 4,
        replicas: 1.0,
        min_part_hours: 0,
        overload: 0.0,
    };
    let mut builder = Builder::create(settings, [7; 16]).unwrap();
    // Ids are assigned in order, so devices with lower ids than the world's are added and then
    // removed.
    for number in 0..=world_device {
        let node = Node { name: "n1".into(), address: "127.0.0.1:6200".into() };
        let (name, meta) = (format!("d{number}"), String::new());
        builder.add(NewDevice { region: 1, zone: 1, node, name, weight: 1.0, meta }).unwrap();
    }
    for number in 0..world_device {
        builder.remove(martlet_protocol::DeviceId(number), true).unwrap();
    }
    builder.rebalance(RebalanceContext::default()).unwrap();
    Arc::new(builder.ring().unwrap())
}

fn world() -> World {
    World::with_policies(vec![cold(1)])
}

#[tokio::test]
async fn a_bucket_is_made_under_the_policy_that_it_names() {
    let world = world();
    let made = world.call("PUT", "/cold").header(POLICY, "cold-ec").send().await.expect(200);
    assert_eq!((made.header(POLICY), made.header("location")), ("cold-ec", "/cold"));
    let made = world.call("PUT", "/plain").send().await.expect(200);
    assert_eq!(made.header(POLICY), "default");
    for (bucket, policy) in [("/cold", "cold-ec"), ("/plain", "default")] {
        let head = world.call("HEAD", bucket).send().await.expect(200);
        assert_eq!(head.header(POLICY), policy);
    }
}

#[tokio::test]
async fn an_unknown_storage_policy_is_an_error_with_the_known_ones() {
    let world = world();
    let refused = world.call("PUT", "/bkt").header(POLICY, "warm").send().await;
    refused.refused(400, "InvalidArgument");
    let message = refused.one("Message");
    assert!(message.contains("there are default, cold-ec"), "{message}");
    world.call("HEAD", "/bkt").send().await.expect(404);
}

#[tokio::test]
async fn only_buckets_are_made_under_a_policy_by_that_header() {
    let world = World::with_bucket().await;
    for (method, target) in [("PUT", "/bkt/k"), ("HEAD", "/bkt"), ("DELETE", "/bkt")] {
        let reply = world.call(method, target).header(POLICY, "default").send().await;
        assert_eq!(reply.status, 501, "{method} {target}");
    }
    world.call("HEAD", "/bkt").send().await.expect(200);
}

#[tokio::test]
async fn a_storage_class_is_returned_as_sent() {
    let world = world();
    world.call("PUT", "/bkt").send().await.expect(200);
    for (key, class) in [("a", "COLD_EC"), ("b", "cold-ec"), ("c", "STANDARD")] {
        let put = world.call("PUT", &format!("/bkt/{key}")).header(CLASS, class).body(LONG);
        put.send().await.expect(200);
        let got = world.get(&format!("/bkt/{key}")).await.expect(200);
        assert_eq!(got.bytes(), LONG);
        assert_eq!(got.has(CLASS), class != "STANDARD");
        assert!(class == "STANDARD" || got.header(CLASS) == class);
    }
    let listed = world.get("/bkt?list-type=2").await.expect(200).all("StorageClass");
    assert_eq!(listed, ["COLD_EC", "cold-ec", "STANDARD"]);
    let refused = world.call("PUT", "/bkt/d").header(CLASS, "GLACIER").body(LONG).send().await;
    refused.refused(400, "InvalidStorageClass");
    assert!(refused.one("Message").contains("cold-ec"), "{refused:?}");
    world.get("/bkt/d").await.refused(404, "NoSuchKey");
}

#[tokio::test]
async fn a_copy_onto_itself_changes_the_storage_class() {
    let world = world();
    world.call("PUT", "/bkt").send().await.expect(200);
    let described = world.call("PUT", "/bkt/k").header("content-type", "a/b").body(LONG);
    described.send().await.expect(200);
    let copy = |class: Option<&'static str>| {
        let call = world.call("PUT", "/bkt/k").header("x-amz-copy-source", "/bkt/k");
        if let Some(class) = class { call.header(CLASS, class) } else { call }
    };
    copy(None).send().await.refused(400, "InvalidRequest");
    copy(Some("GLACIER")).send().await.refused(400, "InvalidStorageClass");
    copy(Some("COLD_EC")).send().await.expect(200);
    let got = world.get("/bkt/k").await.expect(200);
    assert_eq!((got.header(CLASS), got.header("content-type")), ("COLD_EC", "a/b"));
    assert_eq!(got.bytes(), LONG);
    let elsewhere = world.call("PUT", "/bkt/copy").header("x-amz-copy-source", "/bkt/k");
    elsewhere.send().await.expect(200);
    let copied = world.call("HEAD", "/bkt/copy").send().await.expect(200);
    assert!(!copied.has(CLASS), "a copy is STANDARD unless it asks for something else");
}

#[tokio::test]
async fn an_upload_has_the_storage_class_that_it_began_with() {
    let world = world();
    world.call("PUT", "/bkt").send().await.expect(200);
    let begin = world.call("POST", "/bkt/k?uploads").header(CLASS, "COLD_EC");
    let id = begin.send().await.expect(200).one("UploadId");
    assert_eq!(world.get("/bkt?uploads").await.one("StorageClass"), "COLD_EC");
    let put = world.put(&format!("/bkt/k?partNumber=1&uploadId={id}"), LONG).await;
    assert_eq!(world.get(&format!("/bkt/k?uploadId={id}")).await.one("StorageClass"), "COLD_EC");
    let parts = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part>\
         </CompleteMultipartUpload>",
        put.header("etag").replace('"', "&quot;")
    );
    world.call("POST", &format!("/bkt/k?uploadId={id}")).body(parts).send().await.expect(200);
    assert_eq!(world.get("/bkt/k").await.header(CLASS), "COLD_EC");
    let refused = world.call("POST", "/bkt/k?uploads").header(CLASS, "GLACIER").send().await;
    refused.refused(400, "InvalidStorageClass");
}
