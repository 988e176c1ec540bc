//! Effects of a bucket's rules: aborted uploads, visited objects.

use async_trait::async_trait;
use martlet_protocol::Settings;
use martlet_protocol::lifecycle::{self, Expiration, ExpiryCursor, ExpiryOutcome, Rule, Stretch};
use parking_lot::Mutex;

use super::*;
use crate::cursors::MemoryCursors;

fn rule(prefix: &str, abort_upload_days: Option<u32>) -> Rule {
    Rule {
        id: "r".into(),
        is_enabled: true,
        scope: lifecycle::Scope::Prefix(prefix.into()),
        expiration: None,
        noncurrent: None,
        abort_upload_days,
    }
}

fn settings(rules: Vec<Rule>) -> Settings {
    let mut settings = Settings::default();
    let document = Lifecycle { rules, transition_minimum: None }.document();
    settings.set(Setting::Lifecycle, document).unwrap();
    settings
}

fn is_aborted(value: &Value) -> bool {
    matches!(value, Value::Upload(upload) if upload.state == UploadState::Aborted)
}

#[tokio::test]
async fn uploads_are_aborted_by_the_rules_of_their_bucket_and_key() {
    let fixture = Fixture::with_settings(settings(vec![rule("a/", Some(3))])).await;
    let (old, _) = fixture.upload("a/old", UploadState::Open).await;
    let (other, _) = fixture.upload("b/old", UploadState::Open).await;
    let (decided, _) = fixture.upload("a/decided", decided()).await;
    fixture.wait(2000);
    let (young, _) = fixture.upload("a/young", UploadState::Open).await;
    assert_eq!(fixture.run().await.done, 0);
    fixture.wait(1000);
    assert_eq!(fixture.run().await.done, 1);
    assert!(is_aborted(&fixture.held(&old).await));
    for at in [&other, &young, &decided] {
        assert!(!is_aborted(&fixture.held(at).await), "{at:?}");
    }
}

/// The newest rules count, whichever device holds them.
#[tokio::test]
async fn rules_that_were_taken_back_abort_nothing() {
    let fixture = Fixture::with_settings(settings(vec![rule("", Some(1))])).await;
    let (at, _) = fixture.upload("k", UploadState::Open).await;
    fixture.set_bucket(Settings::default(), 1).await;
    fixture.wait(5000);
    assert_eq!(fixture.run().await.done, 0);
    assert!(!is_aborted(&fixture.held(&at).await));
    let mut later = settings(vec![rule("", Some(1))]);
    let mut document = later.get(Setting::Lifecycle).unwrap().to_vec();
    document[0] += 1;
    later.set(Setting::Lifecycle, document).unwrap();
    fixture.set_bucket(later, 3).await;
    assert_eq!(fixture.run().await.done, 0, "nor do those that are not understood");
}

/// A pass over many buckets takes hours, and finds the rules at its start.
#[tokio::test]
async fn rules_that_were_removed_during_a_pass_abort_nothing_more() {
    let fixture = Fixture::with_settings(settings(vec![rule("", Some(1))])).await;
    let mut uploads = Vec::new();
    for number in 0..40 {
        uploads.push(fixture.upload(&format!("k{number}"), UploadState::Open).await.0);
    }
    fixture.wait(5000);
    let aborted = async || {
        let mut count = 0;
        for at in &uploads {
            count += usize::from(is_aborted(&fixture.held(at).await));
        }
        count
    };
    let (shared, clock) = (fixture.world.shared.clone(), fixture.world.clock.clone());
    let mut expire = Expire::new(shared, clock, DeviceScope::All, OPTIONS);
    expire.step().await.unwrap();
    let before = aborted().await;
    assert!(0 < before && before < uploads.len(), "the pass is under way: {before}");
    // A quorum is enough.
    fixture.set_bucket(Settings::default(), 2).await;
    while expire.lists.is_some() {
        expire.step().await.unwrap();
    }
    assert_eq!(aborted().await, before);
}

/// Records the shards and uploads for which it is called.
#[derive(Default)]
struct RecordingExpiry(Mutex<Vec<Stretch>>, Mutex<Vec<(String, String, UploadId)>>);

#[async_trait]
impl ObjectExpiry for RecordingExpiry {
    async fn carry_out(&self, stretch: &Stretch) -> Result<ExpiryOutcome> {
        self.0.lock().push(stretch.clone());
        Ok(ExpiryOutcome { seen: 1, done: 1, kept: 0, next: None })
    }

    async fn finish_upload(&self, bucket: &str, key: &str, upload: UploadId) -> Result<bool> {
        self.1.lock().push((bucket.to_owned(), key.to_owned(), upload));
        Ok(true)
    }
}

/// Returns the shards that a worker of these nodes visits.
async fn shards_of(fixture: &Fixture, scope: DeviceScope) -> Vec<u16> {
    let (shared, clock) = (fixture.world.shared.clone(), fixture.world.clock.clone());
    let (expiry, cursors) =
        (Arc::new(RecordingExpiry::default()), Arc::new(MemoryCursors::default()));
    let expire = Expire::new(shared, clock, scope, OPTIONS);
    let progress = run_once(&mut expire.with_objects(expiry.clone(), cursors)).await.unwrap();
    let stretches = std::mem::take(&mut *expiry.0.lock());
    assert!(
        stretches.iter().all(|it| it.bucket == "bucket" && it.after.is_none()),
        "{stretches:?}"
    );
    assert_eq!(progress.done, stretches.len() as u64);
    stretches.into_iter().map(|stretch| stretch.shard.0).collect()
}

/// Uploads whose client never came back, and whose proxy died.
#[tokio::test]
async fn uploads_that_were_left_in_their_completion_are_driven_on() {
    let fixture = Fixture::new().await;
    let (_, left) = fixture.upload("left", decided()).await;
    fixture.wait(10_001);
    let (_, _) = fixture.upload("young", decided()).await;
    let (_, _) = fixture.upload("open", UploadState::Open).await;
    assert_eq!(fixture.run().await.done, 0, "there is no object layer");
    let (shared, clock) = (fixture.world.shared.clone(), fixture.world.clock.clone());
    let (expiry, cursors) =
        (Arc::new(RecordingExpiry::default()), Arc::new(MemoryCursors::default()));
    let expire = Expire::new(shared, clock, DeviceScope::All, OPTIONS);
    let progress = run_once(&mut expire.with_objects(expiry.clone(), cursors)).await.unwrap();
    assert_eq!(progress.done, 1);
    assert_eq!(*expiry.1.lock(), [("bucket".to_owned(), "left".to_owned(), left)]);
}

/// Visits of objects that never end.
#[derive(Default)]
struct EndlessExpiry(RecordingExpiry);

#[async_trait]
impl ObjectExpiry for EndlessExpiry {
    async fn carry_out(&self, stretch: &Stretch) -> Result<ExpiryOutcome> {
        let next = Some(ExpiryCursor { key: "k".into(), within: None });
        Ok(ExpiryOutcome { next, ..self.0.carry_out(stretch).await? })
    }

    async fn finish_upload(&self, bucket: &str, key: &str, upload: UploadId) -> Result<bool> {
        self.0.finish_upload(bucket, key, upload).await
    }
}

/// Visits of objects are spread over half a day. A completion whose proxy died does not wait for them.
#[tokio::test]
async fn uploads_are_visited_while_objects_are_walked_over() {
    let mut of_objects = rule("", None);
    of_objects.expiration = Some(Expiration::Days(1));
    let fixture = Fixture::with_settings(settings(vec![of_objects])).await;
    let (shared, clock) = (fixture.world.shared.clone(), fixture.world.clock.clone());
    let (expiry, cursors) =
        (Arc::new(EndlessExpiry::default()), Arc::new(MemoryCursors::default()));
    let expire = Expire::new(shared, clock, DeviceScope::All, OPTIONS);
    let mut expire = expire.with_objects(expiry.clone(), cursors);
    while !expire.walks_objects() {
        expire.step().await.unwrap();
    }
    let (_, id) = fixture.upload("left", decided()).await;
    fixture.wait(OPTIONS.completing_age_ms + 1000);
    fixture.wait(u64::try_from(REST_MAX.as_millis()).unwrap());
    for _ in 0..1000 {
        if !expiry.0.1.lock().is_empty() {
            break;
        }
        assert!(expire.objects.as_ref().unwrap().is_under_way());
        expire.step().await.unwrap();
    }
    assert_eq!(expiry.0.1.lock()[0].2, id);
    assert!(expire.objects.as_ref().unwrap().is_under_way());
    while !expire.walks_objects() {
        expire.step().await.unwrap();
    }
    let visited = expiry.0.0.lock().len();
    expire.step().await.unwrap();
    assert_eq!(expiry.0.0.lock().len(), visited + 1, "the walk goes on between two passes");
}

#[tokio::test]
async fn every_shard_of_a_bucket_with_rules_has_one_worker() {
    let expiring = Rule { expiration: Some(Expiration::Days(1)), ..rule("", None) };
    let fixture = Fixture::with_settings(settings(vec![expiring])).await;
    let all: Vec<u16> = (0..SHARDS).collect();
    assert_eq!(shards_of(&fixture, DeviceScope::All).await, all);
    let mut found = Vec::new();
    for node in 0..5 {
        found.extend(shards_of(&fixture, DeviceScope::Nodes(vec![format!("n{node}")])).await);
    }
    found.sort_unstable();
    assert_eq!(found, all);
}

/// One silent node doesn't block the walk; without two of three nodes, the rules are unknown.
#[tokio::test]
async fn a_quorum_returns_the_buckets_and_their_rules() {
    let expiring = Rule { expiration: Some(Expiration::Days(1)), ..rule("", None) };
    let fixture = Fixture::with_settings(settings(vec![expiring])).await;
    let root = RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, "bucket");
    let primaries = fixture.world.primaries(&root);
    fixture.world.memory(primaries[0]).set_offline(primaries[0], true);
    let shards = shards_of(&fixture, DeviceScope::All).await;
    assert_eq!(shards, (0..SHARDS).collect::<Vec<_>>());
    fixture.world.memory(primaries[1]).set_offline(primaries[1], true);
    assert_eq!(shards_of(&fixture, DeviceScope::All).await, [0; 0], "silence means keep");
}

#[tokio::test]
async fn buckets_without_rules_about_objects_are_left_alone() {
    for rules in [vec![], vec![rule("", Some(1))]] {
        let fixture = Fixture::with_settings(settings(rules)).await;
        assert_eq!(shards_of(&fixture, DeviceScope::All).await, [0; 0]);
    }
}

#[test]
fn short_days_are_looked_at_often() {
    let expire = |day| {
        let world = MultiNodeWorld::new(3);
        let options = ExpireOptions { day, ..ExpireOptions::default() };
        Expire::new(world.shared.clone(), world.clock.clone(), DeviceScope::All, options)
    };
    let usual = Duration::from_secs(30);
    assert_eq!(expire(Day::FULL).idle_pause(usual), REST_MAX);
    assert_eq!(expire(Day::of_seconds(10)).idle_pause(usual), Duration::from_secs(1));
    assert_eq!(expire(Day::of_seconds(240)).idle_pause(usual), Duration::from_secs(10));
}
