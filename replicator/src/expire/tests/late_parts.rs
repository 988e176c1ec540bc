//! Parts that come after their upload was removed, and parts whose uploads are hard to find.

use martlet_protocol::DeviceId;

use super::*;
use crate::replicate::ReplicateRegisters;
use crate::update::Update;

/// Age from which on a part can't be in flight, with a margin for clocks.
const OLD_MS: u64 = OPTIONS.ended_grace_ms + martlet_protocol::limits::CLOCK_SKEW_MS_MAX + 1;

impl Fixture {
    /// Lets devices exchange registers and hints until nothing changes.
    async fn exchange(&self) {
        let (shared, clock) = (&self.world.shared, &self.world.clock);
        for _ in 0..3 {
            clock.advance_ms(60_000);
            let mut update = Update::new(shared.clone(), clock.clone(), DeviceScope::All);
            run_once(&mut update).await.unwrap();
            let mut registers =
                ReplicateRegisters::new(shared.clone(), clock.clone(), DeviceScope::All);
            run_once(&mut registers).await.unwrap();
        }
    }

    /// Keeps an entry as a hint on a device.
    async fn hint(&self, device: DeviceId, at: &RegisterKey, value: Value) {
        let mut put: EntryWrite = write(at, self.world.stamps.issue(), 0, Body::Empty);
        put.entry.value = value;
        self.world.memory(device).keep_hint(device, put).await.unwrap();
    }

    fn part_value(&self) -> Value {
        Value::Part(Box::new(Part {
            size: 1,
            tag: [0; 16],
            modified_ms: self.world.clock.now_ms(),
            checksums: Vec::new(),
            body: Body::Empty,
        }))
    }

    fn set_silent(&self, device: DeviceId, is_silent: bool) {
        self.world.memory(device).set_offline(device, is_silent);
    }
}

#[tokio::test]
async fn a_part_of_a_device_that_was_out_for_days_is_freed_after_its_return() {
    let it = Fixture::new().await;
    let (at, id) = it.upload("key", UploadState::Aborted).await;
    let part = RegisterKey::part(&at, id, 1, WriteId::random());
    // The last primary alone took the part, and went out.
    let keeper = it.world.primaries(&at)[2];
    let mut put: EntryWrite = write(&part, it.world.stamps.issue(), 0, Body::Empty);
    put.entry.value = it.part_value();
    it.world.write_on(&[keeper], &put).await;
    it.set_silent(keeper, true);
    it.wait(OLD_MS);
    it.run().await;
    assert!(it.is_gone(&at).await, "no device delays the removal of an upload");
    it.set_silent(keeper, false);
    it.exchange().await;
    for device in it.world.primaries(&at) {
        let held = it.world.held(device, &part).await.entry;
        assert!(held.is_some_and(|it| !it.value.is_tombstone()), "the part came to all primaries");
    }
    assert!(it.is_gone(&at).await, "the upload did not come back");
    let progress = it.run().await;
    assert!(it.is_gone(&part).await);
    assert_eq!((progress.done, progress.kept), (1, 0));
    it.exchange().await;
    assert!(it.is_gone(&part).await);
}

#[tokio::test]
async fn a_part_that_comes_as_a_hint_is_freed_once_it_is_delivered() {
    let it = Fixture::new().await;
    let (at, id) = it.upload("key", UploadState::Aborted).await;
    let handoff = it.world.handoff(&at);
    let part = RegisterKey::part(&at, id, 7, WriteId::random());
    it.hint(handoff, &part, it.part_value()).await;
    it.set_silent(handoff, true);
    it.wait(OLD_MS);
    it.run().await;
    assert!(it.is_gone(&at).await, "no device delays the removal of an upload");
    it.set_silent(handoff, false);
    it.exchange().await;
    assert!(!it.is_gone(&part).await);
    it.run().await;
    assert!(it.is_gone(&part).await);
}

#[tokio::test]
async fn parts_of_living_uploads_and_young_parts_stay() {
    let it = Fixture::new().await;
    let mut living = Vec::new();
    for key in ["a", "b", "c", "d", "e", "f"] {
        for state in [UploadState::Open, decided()] {
            let (at, id) = it.upload(key, state).await;
            for number in 1..4 {
                living.push(it.part(&at, id, number, 3).await);
            }
        }
    }
    it.wait(OLD_MS);
    let mut young = Vec::new();
    for key in ["a", "g"] {
        let id = UploadId::random();
        let at = RegisterKey::upload(it.bucket, SHARDS, key, id);
        young.push(it.part(&at, id, 1, 3).await);
    }
    let options = ExpireOptions { open_age_ms: None, completing_age_ms: u64::MAX, ..OPTIONS };
    let expire = || {
        let (shared, clock) = (it.world.shared.clone(), it.world.clock.clone());
        Expire::new(shared, clock, DeviceScope::All, options)
    };
    let mut first = expire();
    assert_eq!(run_once(&mut first).await.unwrap().done, 0);
    it.wait(OLD_MS);
    assert_eq!(run_once(&mut first).await.unwrap().done, 0, "a walk a day");
    assert_eq!(run_once(&mut expire()).await.unwrap().done, 2);
    for part in &living {
        assert!(!it.is_gone(part).await);
    }
    for part in &young {
        assert!(it.is_gone(part).await, "it was old by then, and no upload was there");
    }
}

#[tokio::test]
async fn an_upload_in_a_hint_keeps_its_parts_and_so_does_silence() {
    let it = Fixture::new().await;
    let id = UploadId::random();
    let at = RegisterKey::upload(it.bucket, SHARDS, "key", id);
    let part = it.part(&at, id, 1, 3).await;
    let handoff = it.world.handoff(&at);
    let (model, _) = it.upload("other", UploadState::Open).await;
    let Value::Upload(mut upload) = it.held(&model).await else { panic!("it was just written") };
    (upload.id, upload.key) = (id, "key".into());
    it.hint(handoff, &at, Value::Upload(upload)).await;
    it.wait(OLD_MS);
    let options = ExpireOptions { open_age_ms: None, ..OPTIONS };
    let run = async || {
        let (shared, clock) = (it.world.shared.clone(), it.world.clock.clone());
        run_once(&mut Expire::new(shared, clock, DeviceScope::All, options)).await.unwrap()
    };
    assert_eq!(run().await.done, 0);
    it.set_silent(handoff, true);
    let progress = run().await;
    assert!(progress.done == 0 && progress.kept > 0, "silence keeps parts: {progress:?}");
    assert!(!it.is_gone(&part).await);
    it.set_silent(handoff, false);
    it.exchange().await;
    assert!(!it.is_gone(&at).await, "the upload has come, and its client may complete it");
    assert_eq!(run().await.done, 0);
    assert!(!it.is_gone(&part).await);
}
