//! Rules that proxies were told are carried out by replicators, each for the shards of its nodes.

use bytes::Bytes;
use martlet_tests::cluster::Plan;
use martlet_tests::probe::PATIENCE;

use super::{BUCKET, make_bucket, until};

const RULES: &str = "<LifecycleConfiguration>\
    <Rule><ID>old</ID><Filter><Prefix>old/</Prefix></Filter><Status>Enabled</Status>\
    <Expiration><Days>1</Days></Expiration>\
    <NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>\
    </Rule></LifecycleConfiguration>";
const VERSIONING: &str =
    "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m1_replicators_carry_rules_out() {
    let environment = vec![("MARTLET_LIFECYCLE_DAY_SECONDS", "1")];
    let cluster = Plan { proxies: 2, environment, ..Plan::default() }.start().await;
    make_bucket(&cluster, BUCKET).await;
    let (mut one, mut other) = (cluster.client(0), cluster.client(1));
    until("versions are kept", PATIENCE, async || {
        let target = format!("/{BUCKET}?versioning=");
        let reply = one.send("PUT", &target, VERSIONING.into()).await;
        reply.is_ok_and(|reply| reply.status == 200)
    })
    .await;
    for number in 0..20 {
        for folder in ["old", "new"] {
            let target = format!("/{BUCKET}/{folder}/{number:02}");
            let reply = one.put(&target, Bytes::from_static(b"abc")).await.unwrap();
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
    }
    let reply = other.send("PUT", &format!("/{BUCKET}?lifecycle="), RULES.into()).await.unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    // Delete markers come first; then what is behind them goes, and at last they do.
    until("all that is old is gone for good", PATIENCE, async || {
        let reply = one.get(&format!("/{BUCKET}?prefix=old%2F&versions=")).await;
        reply.is_ok_and(|reply| reply.status == 200 && reply.all("Key").is_empty())
    })
    .await;
    let expected: Vec<String> = (0..20).map(|number| format!("new/{number:02}")).collect();
    assert_eq!(other.keys(BUCKET).await, expected);
    cluster.assert_nobody_panicked();
}
