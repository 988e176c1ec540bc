//! Uploads that are removed, in order; and objects that are visited.

mod late_parts;
mod many_parts;
mod orphan_walk;
mod rules;

use martlet_protocol::backend::EntryWrite;
use martlet_protocol::entry::{
    Attributes, Body, Bucket, BucketState, ETag, KeyCondition, Object, Part,
};
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::{Level, PolicyId, Stamp, UploadId, WriteId};

use super::*;
use crate::run_once;
use crate::testing::multi_node::{MultiNodeWorld, write};

const SHARDS: u16 = 16;
const OPTIONS: ExpireOptions = ExpireOptions {
    open_age_ms: Some(100_000),
    completing_age_ms: 10_000,
    parts_grace_ms: 1000,
    ended_grace_ms: 50_000,
    day: Day::of_seconds(1),
};

/// A cluster with a bucket.
struct Fixture {
    world: MultiNodeWorld,
    bucket: BucketId,
}

impl Fixture {
    async fn new() -> Self {
        Self::with_settings(martlet_protocol::Settings::default()).await
    }

    async fn with_settings(settings: martlet_protocol::Settings) -> Self {
        let fixture = Self { world: MultiNodeWorld::new(5), bucket: BucketId::random() };
        fixture.set_bucket(settings, 3).await;
        fixture
    }

    /// Writes the bucket on a number of primaries.
    async fn set_bucket(&self, settings: martlet_protocol::Settings, replicas: usize) {
        let bucket = Bucket {
            id: self.bucket,
            created_ms: 0,
            generation: 1,
            state: BucketState::Open,
            index_shards: SHARDS,
            policy: PolicyId(0),
            owner: "root".into(),
            consistency: Level::default(),
            settings,
        };
        let at = RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, "bucket");
        self.put(&at, Value::Bucket(Box::new(bucket)), replicas).await;
    }

    /// Writes an entry on a number of primaries.
    async fn put(&self, at: &RegisterKey, value: Value, replicas: usize) {
        self.world.clock.advance_ms(1);
        let mut put: EntryWrite = write(at, self.world.stamps.issue(), 0, Body::Empty);
        put.entry.value = value;
        self.world.write_on(&self.world.primaries(at)[..replicas], &put).await;
    }

    async fn upload(&self, key: &str, state: UploadState) -> (RegisterKey, UploadId) {
        let id = UploadId::random();
        let at = RegisterKey::upload(self.bucket, SHARDS, key, id);
        self.set(&at, id, key, state).await;
        (at, id)
    }

    async fn set(&self, at: &RegisterKey, id: UploadId, key: &str, state: UploadState) {
        let upload = Upload {
            key: key.into(),
            id,
            initiated_ms: self.world.clock.now_ms(),
            attributes: Attributes::default(),
            checksum: None,
            policy: PolicyId(0),
            state,
        };
        self.put(at, Value::Upload(Box::new(upload)), 3).await;
    }

    async fn part(
        &self,
        beside: &RegisterKey,
        id: UploadId,
        number: u16,
        on: usize,
    ) -> RegisterKey {
        let at = RegisterKey::part(beside, id, number, WriteId::random());
        let part = Part {
            size: 1,
            tag: [0; 16],
            modified_ms: 0,
            checksums: Vec::new(),
            body: Body::Empty,
        };
        self.put(&at, Value::Part(Box::new(part)), on).await;
        at
    }

    async fn run(&self) -> StepProgress {
        let (shared, clock) = (self.world.shared.clone(), self.world.clock.clone());
        run_once(&mut Expire::new(shared, clock, DeviceScope::All, OPTIONS)).await.unwrap()
    }

    /// Returns the value that a quorum holds.
    async fn held(&self, at: &RegisterKey) -> Value {
        let mut newest: Option<Entry> = None;
        for device in self.world.primaries(at) {
            let held = self.world.held(device, at).await.entry;
            let order = |entry: &Option<Entry>| entry.as_ref().map(|it| it.order);
            newest = if order(&held) > order(&newest) { held } else { newest };
        }
        newest.map_or(Value::Tombstone, |entry| entry.value)
    }

    async fn is_gone(&self, at: &RegisterKey) -> bool {
        self.held(at).await.is_tombstone()
    }

    fn wait(&self, ms: u64) {
        self.world.clock.advance_ms(ms);
    }
}

fn completed() -> UploadState {
    UploadState::Completed { write_id: WriteId::random(), etag: ETag::Md5([0; 16]) }
}

fn decided() -> UploadState {
    let object = Object {
        size: 1,
        etag: ETag::Md5([0; 16]),
        modified_ms: 0,
        attributes: Attributes::default(),
        checksums: Vec::new(),
        upload: None,
        body: Body::Empty,
        version: None,
    };
    UploadState::Completing {
        write_id: WriteId::random(),
        order: Stamp::at_ms(1),
        object: Box::new(object),
        condition: KeyCondition::default(),
        follows: None,
    }
}

#[tokio::test]
async fn parts_of_ended_uploads_go_first_and_the_upload_when_no_part_can_come() {
    let fixture = Fixture::new().await;
    for state in [UploadState::Aborted, completed()] {
        let (at, id) = fixture.upload("key", state).await;
        let parts = [fixture.part(&at, id, 1, 3).await, fixture.part(&at, id, 2, 2).await];
        assert_eq!(fixture.run().await.done, 0, "whoever ended it is still at it");
        fixture.wait(2000);
        assert_eq!(fixture.run().await.done, 1);
        for part in &parts {
            assert!(fixture.is_gone(part).await);
        }
        assert!(!fixture.is_gone(&at).await);
        fixture.wait(OPTIONS.ended_grace_ms);
        fixture.run().await;
        assert!(fixture.is_gone(&at).await);
        assert_eq!(fixture.run().await.done, 0);
    }
}

#[tokio::test]
async fn open_uploads_are_given_up_when_they_are_too_old_and_only_then() {
    let fixture = Fixture::new().await;
    let (at, id) = fixture.upload("old", UploadState::Open).await;
    let part = fixture.part(&at, id, 1, 3).await;
    fixture.wait(99_000);
    let (young, _) = fixture.upload("young", UploadState::Open).await;
    fixture.wait(2000);
    assert_eq!(fixture.run().await.done, 1);
    let state = |value: Value| match value {
        Value::Upload(upload) => upload.state,
        other => panic!("no upload but {other:?}"),
    };
    assert_eq!(state(fixture.held(&at).await), UploadState::Aborted);
    assert_eq!(state(fixture.held(&young).await), UploadState::Open);
    assert!(!fixture.is_gone(&part).await);
    // The ballot may have stamped it ahead of the clock.
    fixture.wait(5000);
    fixture.run().await;
    assert!(fixture.is_gone(&part).await);
}

/// A concurrently decided completion wins or loses as a whole (rule M1).
#[tokio::test]
async fn m1_a_decided_completion_is_left_to_those_who_drive_it() {
    let fixture = Fixture::new().await;
    let (at, id) = fixture.upload("key", UploadState::Open).await;
    let part = fixture.part(&at, id, 1, 3).await;
    fixture.wait(101_000);
    // Known to a quorum, but not to the device that lists it.
    let upload = Upload {
        key: "key".into(),
        id,
        initiated_ms: 0,
        attributes: Attributes::default(),
        checksum: None,
        policy: PolicyId(0),
        state: decided(),
    };
    let mut put = write(&at, fixture.world.stamps.issue(), 0, Body::Empty);
    put.entry.value = Value::Upload(Box::new(upload));
    fixture.world.write_on(&fixture.world.primaries(&at)[1..], &put).await;
    assert_eq!(fixture.run().await.done, 0);
    assert_eq!(fixture.held(&at).await, put.entry.value);
    assert!(!fixture.is_gone(&part).await);
}

#[tokio::test]
async fn without_a_quorum_nothing_goes() {
    let fixture = Fixture::new().await;
    let (at, id) = fixture.upload("key", UploadState::Aborted).await;
    let part = fixture.part(&at, id, 1, 3).await;
    fixture.wait(OPTIONS.ended_grace_ms + 1000);
    let primaries = fixture.world.primaries(&at);
    let expire = Expire::new(
        fixture.world.shared.clone(),
        fixture.world.clock.clone(),
        DeviceScope::All,
        OPTIONS,
    );
    let entry = fixture.world.held(primaries[0], &at).await.entry.unwrap();
    for device in &primaries[1..] {
        fixture.world.memory(*device).set_offline(*device, true);
    }
    let listing = UploadListing {
        bucket: fixture.bucket,
        name: Bytes::from_static(b"bucket"),
        index_shards: SHARDS,
        shards: vec![at.shard],
        device: primaries[0],
        start: ListStart::First,
        rules: Arc::default(),
    };
    assert!(expire.expire(&fixture.world.step(), &listing, &at, &entry).await.is_err());
    for device in &primaries[1..] {
        fixture.world.memory(*device).set_offline(*device, false);
    }
    assert!(!fixture.is_gone(&part).await && !fixture.is_gone(&at).await);
}
