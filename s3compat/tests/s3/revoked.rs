//! Rights that were revoked while one of three replicas was out: no header brings them back (rule A4).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::{Call, Fault, FaultyBackend, MemoryBackend};
use martlet_protocol::{Backend, DeviceId, ErrorKind, Level, ManualClock, PolicyId};
use martlet_proxy::Cluster;
use martlet_ring::Ring;
use tokio::time::sleep;

use crate::world::{NOW_MS, TestReply, World, in_ring};

/// The replica that was out.
const LATE: DeviceId = DeviceId(3);
const PUBLIC: &str = r#"{"Statement": [{"Effect": "Allow", "Principal": "*",
    "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bkt/*"}]}"#;
/// Longer than a proxy waits before it queries another replica.
const SLOW: Duration = Duration::from_millis(300);

/// Three nodes, each with a replica of everything.
struct Replicas {
    clock: Arc<ManualClock>,
    nodes: Vec<(DeviceId, Arc<MemoryBackend>)>,
    ring: Arc<Ring>,
}

impl Replicas {
    /// Nodes with the bucket `bkt` and what `prepare` puts there, on all three.
    async fn with(prepare: impl AsyncFnOnce(&World)) -> Self {
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let ids = [DeviceId(1), DeviceId(2), LATE];
        let node = |id| (id, Arc::new(MemoryBackend::new(clock.clone(), [id])));
        let ring = Arc::new(Ring::of_devices(PolicyId(0), 3, &ids.map(in_ring)).unwrap());
        let replicas = Self { nodes: ids.map(node).to_vec(), clock, ring };
        let world = replicas.world(|_| Fault::None);
        world.call("PUT", "/bkt").send().await.expect(200);
        prepare(&world).await;
        // The third replica gets what a quorum acknowledged.
        sleep(Duration::from_secs(5)).await;
        replicas
    }

    /// A service with empty caches, and these faults.
    fn world(&self, choose: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static) -> World {
        let choose = Arc::new(choose);
        let node = |(id, node): &(DeviceId, Arc<MemoryBackend>)| {
            let choose = choose.clone();
            let faulty = FaultyBackend::new(node.clone(), move |call| choose(call));
            (*id, Arc::new(faulty) as Arc<dyn Backend>)
        };
        let nodes: HashMap<_, _> = self.nodes.iter().map(node).collect();
        let cluster = Cluster::new(self.ring.clone(), vec![self.ring.clone()], nodes).unwrap();
        World::over(cluster, self.clock.clone(), self.nodes[0].1.clone(), self.nodes[0].0)
    }

    /// A service that doesn't reach the late replica.
    fn without_late(&self) -> World {
        self.clock.advance_ms(1000);
        self.world(|call| match call.device {
            LATE => Fault::Refuse(ErrorKind::Unavailable),
            _ => Fault::None,
        })
    }

    /// A service that the late replica answers first.
    fn late_first(&self) -> World {
        self.world(|call| match call.op {
            CallKind::Read if call.device != LATE => Fault::Delay(SLOW),
            _ => Fault::None,
        })
    }
}

async fn read(world: &World, key: &str, level: &str) -> TestReply {
    world.call("GET", key).header("x-martlet-consistency", level).send_unsigned().await
}

/// Requests of all levels are refused, by a proxy that knows nothing yet.
async fn is_refused(replicas: &Replicas, key: &str) {
    for level in ["any", "available", "strict"] {
        let world = replicas.late_first();
        read(&world, key, level).await.refused(403, "AccessDenied");
        // Nothing that was read for the header serves another request.
        world.call("GET", key).send_unsigned().await.refused(403, "AccessDenied");
        read(&world, key, "any").await.refused(403, "AccessDenied");
    }
}

async fn put_public(world: &World) {
    world.call("PUT", "/bkt?policy").body(PUBLIC).send().await.expect(204);
    world.put("/bkt/k", "x").await;
}

#[tokio::test(start_paused = true)]
async fn a4_a_policy_that_was_revoked_stays_revoked_at_every_level() {
    let replicas = Replicas::with(put_public).await;
    read(&replicas.late_first(), "/bkt/k", "any").await.expect(200);
    replicas.without_late().call("DELETE", "/bkt?policy").send().await.expect(204);
    is_refused(&replicas, "/bkt/k").await;
}

#[tokio::test(start_paused = true)]
async fn a4_a_public_access_block_is_in_force_at_every_level() {
    let replicas = Replicas::with(put_public).await;
    let block = "<PublicAccessBlockConfiguration><RestrictPublicBuckets>true\
                 </RestrictPublicBuckets></PublicAccessBlockConfiguration>";
    let writer = replicas.without_late();
    writer.call("PUT", "/bkt?publicAccessBlock").body(block).send().await.expect(200);
    is_refused(&replicas, "/bkt/k").await;
}

#[tokio::test(start_paused = true)]
async fn a4_a_list_that_was_revoked_stays_revoked_at_every_level() {
    let replicas = Replicas::with(async |world: &World| {
        let put = world.call("PUT", "/bkt/k").header("x-amz-acl", "public-read").body("x");
        put.send().await.expect(200);
    })
    .await;
    read(&replicas.late_first(), "/bkt/k", "any").await.expect(200);
    let revoke = replicas.without_late();
    let revoke = revoke.call("PUT", "/bkt/k?acl").header("x-amz-acl", "private");
    revoke.send().await.expect(200);
    is_refused(&replicas, "/bkt/k").await;
}

#[tokio::test(start_paused = true)]
async fn a4_tags_decide_as_a_quorum_has_them_and_for_the_object_that_is_served() {
    let policy = PUBLIC.replace(
        "\"Resource\"",
        r#""Condition": {"StringEquals": {"s3:ExistingObjectTag/class": "public"}}, "Resource""#,
    );
    let tagged = |tag: &'static str, body: &'static str| {
        async move |world: &World, key: &str| {
            let put = world.call("PUT", key).header("x-amz-tagging", tag).body(body);
            put.send().await.expect(200);
        }
    };
    let replicas = Replicas::with(async |world: &World| {
        world.call("PUT", "/bkt?policy").body(policy.clone()).send().await.expect(204);
        tagged("class=public", "x")(world, "/bkt/revoked").await;
        tagged("class=secret", "a secret")(world, "/bkt/published").await;
    })
    .await;
    let writer = replicas.without_late();
    tagged("class=secret", "x")(&writer, "/bkt/revoked").await;
    tagged("class=public", "news")(&writer, "/bkt/published").await;
    is_refused(&replicas, "/bkt/revoked").await;
    // The tags of the new object don't open the bytes of the old one.
    for level in ["any", "available", "strict"] {
        let reply = read(&replicas.late_first(), "/bkt/published", level).await.expect(200);
        assert_eq!(reply.text(), "news", "{level}");
    }
}

#[tokio::test(start_paused = true)]
async fn a4_no_header_lowers_the_level_at_which_a_strict_bucket_decides() {
    for is_strict in [false, true] {
        let replicas = Replicas::with(async |world: &World| {
            put_public(world).await;
            if is_strict {
                world.store.buckets().set_consistency("bkt", Level::Strict).await.unwrap();
            }
        })
        .await;
        replicas.without_late().call("DELETE", "/bkt?policy").send().await.expect(204);
        for level in ["any", "available"] {
            let alone = replicas.world(|call| match call.device {
                LATE => Fault::None,
                _ => Fault::Refuse(ErrorKind::Unavailable),
            });
            // Where a quorum is out, a bucket that isn't strict answers by what can be reached.
            let status = if is_strict { 503 } else { 200 };
            let reply = read(&alone, "/bkt/k", level).await.expect(status);
            assert_eq!(reply.status == 200, !is_strict);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a4_objects_without_a_list_are_read_from_one_replica_at_any() {
    let replicas = Replicas::with(put_public).await;
    let world = replicas.late_first();
    world.call("GET", "/bkt/k").send().await.expect(200);
    let by_owner = world.call("GET", "/bkt/k").header("x-martlet-consistency", "any").send().await;
    let by_policy = read(&world, "/bkt/k", "any").await;
    for reply in [by_owner, by_policy] {
        assert_eq!(reply.header("x-martlet-consistency"), "any", "{reply:?}");
    }
}
