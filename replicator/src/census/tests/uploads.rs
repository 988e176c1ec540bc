//! Parts of uploads, and versions, whose bytes are lost.

use martlet_protocol::entry::{
    Attributes, Body, ETag, KeyCondition, Manifest, Object, Part, Upload, UploadState,
};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{BucketId, Clock, PolicyId, RegisterKey, UploadId, VersionId, WriteId};

use super::*;
use crate::replicate::testing::BUCKET;
use crate::testing::POLICY;
use crate::testing::multi_node::write;

const UPLOAD: UploadId = UploadId([3; 16]);

async fn put(world: &MultiNodeWorld, at: &RegisterKey, value: Value) {
    world.clock.advance_ms(1);
    let mut put = write(at, world.stamps.issue(), 0, Body::Empty);
    put.entry.value = value;
    world.write_on(&world.primaries(at), &put).await;
}

async fn set_upload(world: &MultiNodeWorld, state: UploadState) -> RegisterKey {
    let at = RegisterKey::upload(BUCKET, 16, "object", UPLOAD);
    let upload = Upload {
        key: "object".into(),
        id: UPLOAD,
        initiated_ms: world.clock.now_ms(),
        attributes: Attributes::default(),
        checksum: None,
        policy: PolicyId(0),
        state,
    };
    put(world, &at, Value::Upload(Box::new(upload))).await;
    at
}

fn body(extent: ExtentRef) -> Body {
    let (parts, part_checksums) = (Vec::new(), Vec::new());
    Body::Extents(Manifest { policy: POLICY, extents: vec![extent], parts, part_checksums })
}

fn object(extent: ExtentRef) -> Box<Object> {
    Box::new(Object {
        size: 16,
        etag: ETag::Md5([0; 16]),
        modified_ms: 0,
        attributes: Attributes::default(),
        checksums: Vec::new(),
        upload: None,
        body: body(extent),
        version: None,
    })
}

/// Makes an open upload of one part, whose extent exists.
async fn world_with_part() -> (MultiNodeWorld, ExtentRef) {
    let world = MultiNodeWorld::new(5);
    world.make_bucket(POLICY).await;
    let at = set_upload(&world, UploadState::Open).await;
    let id = extent_id(1);
    let extent = world.extent_on(&world.data_primaries(id), id, "object").await;
    let part =
        Part { size: 16, tag: [0; 16], modified_ms: 0, checksums: Vec::new(), body: body(extent) };
    let at = RegisterKey::part(&at, UPLOAD, 1, WriteId([9; 16]));
    put(&world, &at, Value::Part(Box::new(part))).await;
    (world, extent)
}

async fn lose(world: &MultiNodeWorld, extent: ExtentRef) {
    for device in world.data_primaries(extent.id) {
        world.memory(device).release_extents(device, &[extent.id]).await.unwrap();
    }
}

#[tokio::test]
async fn a_part_of_an_open_upload_without_a_copy_is_lost() {
    let (world, extent) = world_with_part().await;
    assert!(take(&world).await.clean);
    lose(&world, extent).await;
    let report = take(&world).await;
    assert_eq!((report.lost, report.clean), (1, false), "{report:?}");
    assert!(report.findings[0].contains("LOST") && report.findings[0].contains("object"));
}

#[tokio::test]
async fn missing_parts_of_ended_uploads_are_no_loss() {
    let ended = [
        UploadState::Aborted,
        UploadState::Completed { write_id: WriteId([1; 16]), etag: ETag::Md5([0; 16]) },
    ];
    for state in ended {
        let (world, extent) = world_with_part().await;
        lose(&world, extent).await;
        set_upload(&world, state).await;
        let report = take(&world).await;
        assert_eq!((report.lost, report.clean), (0, true), "{report:?}");
    }
    let (world, extent) = world_with_part().await;
    lose(&world, extent).await;
    let at = RegisterKey::upload(BUCKET, 16, "object", UPLOAD);
    let drop = RegisterDrop { key: at.clone(), up_to: world.stamps.issue(), collectable: false };
    for device in world.primaries(&at) {
        world.memory(device).drop_registers(device, std::slice::from_ref(&drop)).await.unwrap();
    }
    assert_eq!(take(&world).await.lost, 0);
}

#[tokio::test]
async fn completing_uploads_and_versions_are_checked_too() {
    let (world, extent) = world_with_part().await;
    let other = world.extent_on(&world.data_primaries(extent_id(2)), extent_id(2), "object").await;
    let completing = UploadState::Completing {
        write_id: WriteId([1; 16]),
        order: world.stamps.issue(),
        object: object(other),
        condition: KeyCondition::default(),
        follows: None,
    };
    set_upload(&world, completing).await;
    let beside = RegisterKey::object(BUCKET, 16, "object");
    let third = world.extent_on(&world.data_primaries(extent_id(3)), extent_id(3), "object").await;
    let version = VersionId::Numbered { position: 4, write_id: WriteId([2; 16]) };
    put(&world, &RegisterKey::version(&beside, version), Value::Object(object(third))).await;
    assert!(take(&world).await.clean);
    for (lost, gone) in [extent, other, third].into_iter().enumerate() {
        lose(&world, gone).await;
        assert_eq!(take(&world).await.lost, lost as u64 + 1);
    }
}

#[test]
fn names_of_uploads_are_split() {
    let at = RegisterKey::upload(BucketId([1; 16]), 4, "a/b", UploadId([0; 16]));
    let (name, upload) = bodies::split_upload(&at.name).unwrap();
    assert_eq!((name, upload), (&b"a/b"[..], UploadId([0; 16])));
    assert_eq!(bodies::split_upload(b"short"), None);
}
