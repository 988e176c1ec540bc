//! Answers about owners in a cluster of several nodes: requests, agreement, ring changes, silence.

use bytes::Bytes;
use martlet_protocol::backend::{CallKind, EntryWrite};
use martlet_protocol::entry::{Body, Manifest, Value};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::limits::{CLAIMS_AT_ONCE_MAX, COMMIT_WINDOW_MS};
use martlet_protocol::testing::{Fault, FaultyBackend};
use martlet_protocol::{BackendExt, Clock, ManualClock, Phase, RegisterKey, Term, UploadId};
use parking_lot::Mutex;

use super::*;
use crate::testing::POLICY;
use crate::testing::multi_node::{MultiNodeWorld, key, write};

/// A cluster that counts its calls.
fn counted(nodes: u32) -> (MultiNodeWorld, Arc<Mutex<Vec<CallKind>>>) {
    let calls: Arc<Mutex<Vec<CallKind>>> = Arc::default();
    let counted = calls.clone();
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(nodes, clock, move |_, memory| {
        let counted = counted.clone();
        Arc::new(FaultyBackend::new(memory, move |call| {
            counted.lock().push(call.op);
            Fault::None
        }))
    });
    (world, calls)
}

fn naming(world: &MultiNodeWorld, key: &RegisterKey, id: ExtentId) -> EntryWrite {
    world.clock.advance_ms(1);
    let extents = vec![ExtentRef { id, length: 5, blake3: [0; 32] }];
    let (parts, part_checksums) = (Vec::new(), Vec::new());
    let body = Body::Extents(Manifest { policy: POLICY, extents, parts, part_checksums });
    write(key, world.stamps.issue(), 5, body)
}

fn question(key: &RegisterKey, ids: &[ExtentId]) -> OwnerQuestion {
    let claim = OwnerClaim {
        bucket: key.bucket,
        shard: key.shard,
        key: String::from_utf8(key.name.to_vec()).unwrap(),
        upload: None,
    };
    OwnerQuestion { claim, ids: ids.iter().copied().collect(), born_ms: 0 }
}

fn id(number: u16) -> ExtentId {
    let mut bytes = [9; 16];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    ExtentId(bytes)
}

async fn ask(world: &MultiNodeWorld, owners: &Owners, of: &OwnerQuestion) -> OwnerAnswer {
    let now_ms = world.clock.now_ms();
    owners.ask(&world.step(), now_ms, std::slice::from_ref(of)).await.remove(0)
}

#[tokio::test]
async fn many_questions_take_few_requests() {
    let (world, calls) = counted(5);
    let mut questions = Vec::new();
    for number in 0..2000 {
        let key = key(&format!("k{number}"));
        world.write_on(&world.primaries(&key), &naming(&world, &key, id(number))).await;
        questions.push(question(&key, &[id(number), id(number + 5000)]));
    }
    calls.lock().clear();
    let answers = Owners::default().ask(&world.step(), 0, &questions).await;
    for (number, answer) in (0..2000).zip(answers) {
        let found = (answer.needs(id(number)), answer.needs(id(number + 5000)));
        assert_eq!(found, (Some(true), Some(false)), "{number}");
    }
    let calls = calls.lock();
    assert!(calls.iter().all(|call| *call == CallKind::Claims), "{calls:?}");
    let most = 5 + 3 * 2000 / CLAIMS_AT_ONCE_MAX;
    assert!(calls.len() <= most, "{} calls for 2000 questions", calls.len());
}

#[tokio::test]
async fn replicas_that_differ_leave_what_none_needs_unknown() {
    let world = MultiNodeWorld::new(5);
    let (key, owners) = (key("k"), Owners::default());
    let primaries = world.primaries(&key);
    world.write_on(&primaries, &naming(&world, &key, id(1))).await;
    world.write_on(&primaries[..2], &naming(&world, &key, id(2))).await;
    let of = question(&key, &[id(1), id(2), id(3)]);
    let answer = ask(&world, &owners, &of).await;
    let needs = [1, 2, 3].map(|number| answer.needs(id(number)));
    assert_eq!(needs, [Some(true), Some(true), None]);
    world.write_on(&primaries, &naming(&world, &key, id(2))).await;
    let answer = ask(&world, &owners, &of).await;
    let needs = [1, 2, 3].map(|number| answer.needs(id(number)));
    assert_eq!(needs, [Some(false), Some(true), Some(false)]);
}

#[tokio::test]
async fn a_silent_device_keeps_what_it_decides_about_and_what_its_hints_may_name() {
    let world = MultiNodeWorld::new(5);
    let (key, owners) = (key("k"), Owners::default());
    let (primaries, handoff) = (world.primaries(&key), world.handoff(&key));
    world.write_on(&primaries, &naming(&world, &key, id(1))).await;
    world.clock.advance_ms(10 * COMMIT_WINDOW_MS);
    let silence = |device: DeviceId, is: bool| world.memory(device).set_offline(device, is);
    let mut of = question(&key, &[id(2)]);
    silence(handoff, true);
    assert_eq!(ask(&world, &owners, &of).await.needs(id(2)), None, "it was never seen");
    silence(handoff, false);
    assert_eq!(ask(&world, &owners, &of).await.needs(id(2)), Some(false));
    silence(handoff, true);
    assert_eq!(ask(&world, &owners, &of).await.needs(id(2)), Some(false), "it had no hints");
    of.born_ms = world.clock.now_ms() - COMMIT_WINDOW_MS / 2;
    assert_eq!(ask(&world, &owners, &of).await.needs(id(2)), None, "it may have one by now");
    of.born_ms = 0;
    of.claim.upload = Some(UploadId([1; 16]));
    assert_eq!(ask(&world, &owners, &of).await.needs(id(2)), None, "an upload goes on for days");
    of.claim.upload = None;
    silence(primaries[0], true);
    assert_eq!(ask(&world, &owners, &of).await.needs(id(2)), None, "it decides");
    let needed = question(&key, &[id(1)]);
    assert_eq!(ask(&world, &owners, &needed).await.needs(id(1)), Some(true));
}

#[tokio::test]
async fn a_key_with_more_versions_than_a_batch_holds_gets_its_own_request() {
    let world = MultiNodeWorld::new(3);
    let (key, owners) = (key("k"), Owners::default());
    let primaries = world.primaries(&key);
    world.write_on(&primaries, &naming(&world, &key, id(1))).await;
    let count = u64::try_from(martlet_protocol::backend::CLAIM_ROWS_MAX).unwrap() + 1;
    for position in 0..count {
        let write_id = martlet_protocol::WriteId::random();
        let version = martlet_protocol::VersionId::Numbered { position, write_id };
        let aside = RegisterKey::version(&key, version);
        let named = id(u16::try_from(position % 3).unwrap() + 2);
        world.write_on(&primaries, &naming(&world, &aside, named)).await;
    }
    let of = question(&key, &[id(1), id(2), id(4), id(5)]);
    let answer = ask(&world, &owners, &of).await;
    let needs = [1, 2, 4, 5].map(|number| answer.needs(id(number)));
    assert_eq!(needs, [Some(true), Some(true), Some(true), Some(false)]);
}

#[tokio::test]
async fn a_hint_counts_and_a_device_whose_hints_are_unread_is_silent() {
    let world = MultiNodeWorld::new(5);
    let (key, owners) = (key("k"), Owners::default());
    let (primaries, handoff) = (world.primaries(&key), world.handoff(&key));
    world.write_on(&primaries, &naming(&world, &key, id(1))).await;
    world.keep_on(handoff, &naming(&world, &key, id(2))).await;
    let of = question(&key, &[id(2), id(3)]);
    let answer = ask(&world, &owners, &of).await;
    assert_eq!((answer.needs(id(2)), answer.needs(id(3))), (Some(true), Some(false)));
}

/// An object whose tombstone some primaries have: the older entry still names the extent.
#[tokio::test]
async fn a_tombstone_frees_only_once_all_have_it() {
    let world = MultiNodeWorld::new(5);
    let (key, owners) = (key("k"), Owners::default());
    let primaries = world.primaries(&key);
    world.write_on(&primaries, &naming(&world, &key, id(1))).await;
    let mut gone = naming(&world, &key, id(2));
    gone.entry.value = Value::Tombstone;
    let of = question(&key, &[id(1)]);
    world.write_on(&primaries[1..], &gone).await;
    assert_eq!(ask(&world, &owners, &of).await.needs(id(1)), Some(true));
    world.write_on(&primaries, &gone).await;
    assert_eq!(ask(&world, &owners, &of).await.needs(id(1)), Some(false));
    assert_eq!(gone.key.name, Bytes::from_static(b"k"));
}

#[tokio::test]
async fn while_a_replica_moves_old_holders_agree_and_a_new_one_may_lack_entries() {
    let world = MultiNodeWorld::new(4);
    let ring = world.grow(4).await;
    let (new, joint) = (DeviceId(4), Term::of(ring.change(), Phase::Joint));
    world.memory(new).set_voting(new, true).await.unwrap();
    world.give_fences(new).await;
    for device in world.devices() {
        world.memory(device).raise_term(device, joint).await.unwrap();
    }
    world.shared.raise_term(joint);
    let (key, owners) = (world.key_moving_to(new), Owners::default());
    let sets = world.step().sets(key.placement());
    let old: Vec<DeviceId> = sets.set(0).collect();
    assert!(sets.is_joint() && !old.contains(&new));
    let first = naming(&world, &key, id(1));
    world.write_on(&old, &first).await;
    world.write_on(&old, &naming(&world, &key, id(2))).await;
    let of = question(&key, &[id(1), id(2)]);
    let answer = ask(&world, &owners, &of).await;
    assert_eq!((answer.needs(id(1)), answer.needs(id(2))), (Some(false), Some(true)));
    world.write_on(&[new], &first).await;
    assert_eq!(ask(&world, &owners, &of).await.needs(id(1)), Some(true), "it may decide soon");
    let gone = question(&key, &[id(3)]);
    assert_eq!(ask(&world, &owners, &gone).await.needs(id(3)), Some(false));
    world.memory(new).set_joined(new, ring.change()).await.unwrap();
    assert_eq!(ask(&world, &owners, &gone).await.needs(id(3)), None, "it has joined and differs");
    world.write_on(&old[..1], &naming(&world, &key, id(4))).await;
    assert_eq!(ask(&world, &owners, &gone).await.needs(id(3)), None, "old holders differ");
}
