//! Lifecycle rules set through proxies: each replicator applies them for the shards of its nodes,
//! and sends events to the targets in the bucket's notification rules.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use martlet_tests::cluster::ClusterPlan;
use martlet_tests::probe::PATIENCE;

use serde_json::Value;

use super::{BUCKET, make_bucket, until};

const RULES: &str = "<LifecycleConfiguration>\
    <Rule><ID>old</ID><Filter><Prefix>old/</Prefix></Filter><Status>Enabled</Status>\
    <Expiration><Days>1</Days></Expiration>\
    <NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>\
    </Rule></LifecycleConfiguration>";
const VERSIONING: &str =
    "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";

const HEARS: &str = "<NotificationConfiguration><QueueConfiguration>\
    <Queue>arn:martlet:sqs:::queue</Queue><Event>s3:LifecycleExpiration:*</Event>\
    </QueueConfiguration></NotificationConfiguration>";

/// Events in a file: name, and key with version id.
fn events(path: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The last line may be incomplete while it is written.
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut events: Vec<_> = messages
        .filter_map(|message| {
            let record = message.pointer("/Records/0")?;
            let text = |pointer| record.pointer(pointer)?.as_str().map(str::to_owned);
            let (key, version) = (text("/s3/object/key")?, text("/s3/object/versionId")?);
            Some((text("/eventName")?, format!("{key} {version}")))
        })
        .collect();
    events.sort();
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m1_replicators_carry_rules_out() {
    let folder = tempfile::tempdir().unwrap();
    let queue = folder.path().join("queue");
    let targets: &'static str = format!("queue={}", queue.display()).leak();
    let environment =
        vec![("MARTLET_LIFECYCLE_DAY_SECONDS", "1"), ("MARTLET_NOTIFICATIONS", targets)];
    let cluster = ClusterPlan { proxies: 2, environment, ..ClusterPlan::default() }.start().await;
    make_bucket(&cluster, BUCKET).await;
    let (mut one, mut other) = (cluster.client(0), cluster.client(1));
    until("versions are kept", PATIENCE, async || {
        let target = format!("/{BUCKET}?versioning=");
        let reply = one.send("PUT", &target, VERSIONING.into()).await;
        reply.is_ok_and(|reply| reply.status == 200)
    })
    .await;
    let reply = one.send("PUT", &format!("/{BUCKET}?notification="), HEARS.into()).await.unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    for number in 0..20 {
        for folder in ["old", "new"] {
            let target = format!("/{BUCKET}/{folder}/{number:02}");
            let reply = one.put(&target, Bytes::from_static(b"abc")).await.unwrap();
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
    }
    let reply = other.send("PUT", &format!("/{BUCKET}?lifecycle="), RULES.into()).await.unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    // Delete markers are created first. Then the noncurrent versions expire, and at last the
    // markers.
    until("all that is old is gone for good", PATIENCE, async || {
        let reply = one.get(&format!("/{BUCKET}?prefix=old%2F&versions=")).await;
        reply.is_ok_and(|reply| reply.status == 200 && reply.all("Key").is_empty())
    })
    .await;
    let expected: Vec<String> = (0..20).map(|number| format!("new/{number:02}")).collect();
    assert_eq!(other.keys(BUCKET).await, expected);
    // Per object: one marker is created; then the noncurrent version and the marker are deleted.
    until("all of it has been told", PATIENCE, async || events(&queue).len() >= 60).await;
    let told = events(&queue);
    let of = |name: &str| told.iter().filter(|(event, _)| event == name).count();
    assert_eq!(of("LifecycleExpiration:DeleteMarkerCreated"), 20, "{told:?}");
    assert_eq!(of("LifecycleExpiration:Delete"), 40, "{told:?}");
    assert!(told.is_sorted_by(|one, other| one < other), "each is told once: {told:?}");
    assert!(told.iter().all(|(_, what)| what.starts_with("old/")), "{told:?}");
    cluster.assert_no_panic();
}
