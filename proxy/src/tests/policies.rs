//! Storage policy of objects: the bucket's, the default policy, or the policy that a storage class
//! names.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::entry::{Attributes, Body, Marks, Object};
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Backend, DeviceId, PolicyId, Redundancy, SystemClock};
use martlet_ring::{Builder, Device, NewDevice, Node, RebalanceContext, Ring, RingSettings};

use super::harness::{body, pattern, put};
use crate::{
    Cluster, CompleteUpload, CopyObject, Error, NamedPart, NewBucket, NewUpload, ObjectStore,
    PutObject, ReadConditions, StoreOptions, WriteConditions,
};

const DEVICES: [DeviceId; 2] = [DeviceId(0), DeviceId(1)];
/// Longer than an inline object.
const LONG: usize = 20_000;

/// A ring of a policy, with a copy on every device.
fn ring(policy: u16, name: &str) -> Arc<Ring> {
    let settings = RingSettings {
        policy: PolicyId(policy),
        policy_name: name.to_owned(),
        redundancy: Redundancy::Replicated,
        part_power: 4,
        replicas: 2.0,
        min_part_hours: 0,
        overload: 0.0,
    };
    let mut builder = Builder::create(settings, [7; 16]).unwrap();
    for DeviceId(id) in DEVICES {
        let node = Node { name: format!("n{id}"), address: format!("n{id}:6200") };
        let (name, meta) = ("disk".to_owned(), String::new());
        builder.add(NewDevice { region: 1, zone: 1, node, name, weight: 1.0, meta }).unwrap();
    }
    builder.rebalance(RebalanceContext::default()).unwrap();
    Arc::new(builder.ring().unwrap())
}

/// A cluster with the policies 5, `cold-ec`, and 2, `default`, in this order.
fn cluster() -> Cluster {
    let memory = Arc::new(MemoryBackend::new(Arc::new(SystemClock), DEVICES));
    let nodes = DEVICES.map(|id| (id, memory.clone() as Arc<dyn Backend>));
    let data = vec![ring(5, "cold-ec"), ring(2, "default")];
    Cluster::new(ring(0, "index"), data, HashMap::from(nodes)).unwrap()
}

fn store(cluster: Cluster) -> ObjectStore {
    let options = StoreOptions { part_bytes_min: 10, ..StoreOptions::default() };
    ObjectStore::new(cluster, Arc::new(SystemClock), options)
}

async fn make(store: &ObjectStore, name: &str, policy: Option<&str>) -> Result<PolicyId, Error> {
    let policy = policy.map(str::to_owned);
    let new = NewBucket {
        owner: "me".into(),
        index_shards: 4,
        policy,
        settings: martlet_protocol::Settings::default(),
    };
    store.buckets().create(name, new).await.map(|bucket| bucket.policy)
}

fn class(class: &str) -> Attributes {
    Attributes { storage_class: Some(class.to_owned()), ..Attributes::default() }
}

async fn write(store: &ObjectStore, key: &str, attributes: Attributes) -> Result<Object, Error> {
    let conditions = WriteConditions::default();
    let body = body(pattern(LONG, 3));
    let written = store.put("b", key, PutObject { attributes, body, conditions }).await?;
    Ok(written.object)
}

fn policy_of(object: &Object) -> PolicyId {
    match &object.body {
        Body::Extents(manifest) => manifest.policy,
        other => panic!("it lies within its entry: {other:?}"),
    }
}

#[tokio::test]
async fn a_bucket_gets_the_policy_that_was_named_or_the_default() {
    let store = store(cluster());
    assert_eq!(make(&store, "b", None).await.unwrap(), PolicyId(2));
    assert_eq!(make(&store, "c", Some("cold-ec")).await.unwrap(), PolicyId(5));
    assert_eq!(make(&store, "d", Some("COLD_EC")).await.unwrap(), PolicyId(5));
    let refusal = make(&store, "e", Some("warm")).await.unwrap_err();
    assert!(matches!(refusal, Error::InvalidArgument(_)), "{refusal:?}");
    let sentence = "\"warm\" is not a storage policy: there are default, cold-ec";
    assert_eq!(refusal.to_string(), sentence);
    assert!(matches!(store.bucket("e").await, Err(Error::NoSuchBucket)));
    assert_eq!(store.topology().cluster().policy_name(PolicyId(5)), Some("cold-ec"));
    assert_eq!(store.topology().cluster().policy_name(PolicyId(1)), None);
}

#[tokio::test]
async fn the_default_can_be_set_by_name() {
    let other = cluster().with_default_policy("cold-ec").unwrap();
    let store = store(other);
    assert_eq!(make(&store, "b", None).await.unwrap(), PolicyId(5));
    let written = write(&store, "k", Attributes::default()).await.unwrap();
    assert_eq!(policy_of(&written), PolicyId(5));
    let refusal = cluster().with_default_policy("warm").err().unwrap().to_string();
    assert!(refusal.contains("there are default, cold-ec"), "{refusal}");
}

#[tokio::test]
async fn a_storage_class_that_names_a_policy_wins_over_the_buckets() {
    let store = store(cluster());
    make(&store, "b", None).await.unwrap();
    for (name, policy) in [("STANDARD", 2), ("COLD_EC", 5), ("cold-ec", 5), ("DEFAULT", 2)] {
        let written = write(&store, "k", class(name)).await.unwrap();
        assert_eq!(policy_of(&written), PolicyId(policy), "{name}");
        assert_eq!(written.attributes.storage_class.as_deref(), Some(name), "kept as it came");
    }
    let refusal = write(&store, "k", class("GLACIER")).await.unwrap_err();
    assert!(matches!(&refusal, Error::InvalidStorageClass(it) if it.contains("cold-ec")));
}

#[tokio::test]
async fn a_copy_is_placed_by_its_request_and_not_by_its_source() {
    let store = store(cluster());
    make(&store, "b", None).await.unwrap();
    write(&store, "k", class("COLD_EC")).await.unwrap();
    let copy = |to: &'static str, storage_class: Option<&str>| {
        let copy = CopyObject {
            source: ("b".into(), "k".into()),
            source_version: None,
            source_conditions: ReadConditions::default(),
            attributes: None,
            tags: None,
            marks: Marks::default(),
            storage_class: storage_class.map(str::to_owned),
            checksum: None,
            conditions: WriteConditions::default(),
        };
        store.copy("b", to, copy)
    };
    let plain = copy("copy", None).await.unwrap().object;
    assert_eq!((policy_of(&plain), plain.attributes.storage_class), (PolicyId(2), None));
    // S3 moves an object to another class by a copy onto itself.
    let moved = copy("k", Some("STANDARD")).await.unwrap().object;
    assert_eq!(policy_of(&moved), PolicyId(2));
    assert!(matches!(copy("k", None).await, Err(Error::InvalidRequest(_))));
}

#[tokio::test]
async fn parts_use_the_storage_policy_of_their_upload() {
    let store = store(cluster());
    make(&store, "b", None).await.unwrap();
    let new = NewUpload { attributes: class("COLD_EC"), checksum: None };
    let upload = store.uploads().create("b", "k", new).await.unwrap();
    assert_eq!(upload.storage_class.as_deref(), Some("COLD_EC"));
    let part =
        store.uploads().put_part("b", "k", upload.id, 1, body(pattern(LONG, 4))).await.unwrap();
    let named = NamedPart { number: 1, etag: part.etag.to_string(), checksums: Vec::new() };
    let complete = CompleteUpload { parts: vec![named], ..CompleteUpload::default() };
    let written = store.uploads().complete("b", "k", upload.id, complete).await.unwrap();
    assert_eq!(policy_of(&written.object), PolicyId(5));
    let refused = NewUpload { attributes: class("GLACIER"), checksum: None };
    let refusal = store.uploads().create("b", "k", refused).await.unwrap_err();
    assert!(matches!(refusal, Error::InvalidStorageClass(_)), "{refusal:?}");
}

#[tokio::test]
async fn inline_objects_may_have_a_storage_class() {
    let store = store(cluster());
    make(&store, "b", Some("cold-ec")).await.unwrap();
    let short = body(Bytes::from_static(b"short"));
    let written = put(&store, "k", short, WriteConditions::default()).await.unwrap();
    assert!(matches!(written.object.body, Body::Inline { .. }));
}

#[test]
fn the_data_rings_are_in_order_of_policy_number() {
    let cluster = cluster();
    let numbers: Vec<_> = cluster.policies().map(|ring| ring.identity().policy.0).collect();
    assert_eq!((numbers, cluster.default_policy()), (vec![2, 5], PolicyId(2)));
    assert!(cluster.policies().flat_map(Ring::devices).all(|it: &Device| it.id.0 < 2));
}
