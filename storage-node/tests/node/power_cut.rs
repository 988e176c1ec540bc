//! After a power cut, a device has all acknowledged writes.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use martlet_protocol::Term;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::*;
use martlet_protocol::backend::{Backend, DeviceHealth, Want, WriteReply};
use martlet_protocol::entry::Value;
use martlet_protocol::{BackendExt, Clock, Stamp, SystemClock};
use martlet_storage_node::{NodeOptions, StorageNode};

const RESERVE: u64 = 1024 * 1024;
const WRITERS: u64 = 8;
const ROUNDS: u64 = 4;
const IMAGE_MIB: u64 = 512;
/// Objects of each writer in a round, so that a fast disk isn't full before the last round.
const OBJECTS_MAX: u64 = 20;
/// Writes acknowledged in a round before its power cut.
const WRITES_MIN: u64 = 40;
/// Lengths in bytes: inline, packed, in a file of its own.
const LENGTHS: [usize; 3] = [2000, 70_000, 1_100_000];

/// Changes of an object, in order: the time of the acknowledgement, if any, and the length in bytes
/// after the change.
type ObjectHistory = Vec<(Option<u64>, Option<usize>)>;
type Objects = HashMap<String, ObjectHistory>;

/// `MARTLET_POWER_CUT_IMAGES` (1) images, each for some power cuts: it becomes full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_power_cut() {
    let images = std::env::var("MARTLET_POWER_CUT_IMAGES");
    for _ in 0..images.map_or(1, |text| text.parse().unwrap()) {
        Box::pin(cut_power_of_an_image()).await;
    }
}

async fn cut_power_of_an_image() {
    let Some(mut image) = Image::new("a power cut", IMAGE_MIB) else { return };
    let root = image.path().join("device");
    let mut rounds: Vec<(u64, Objects)> = Vec::new();
    for round in 0..ROUNDS {
        let node = Arc::new(open(&root, RESERVE).unwrap());
        check(&node, &rounds).await;
        let done = Arc::new(AtomicU64::new(0));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| tokio::spawn(work(node.clone(), done.clone(), round, writer)))
            .collect();
        wait_for(&done, WRITES_MIN).await;
        tokio::time::sleep(Duration::from_millis(20 * round)).await;
        let Some((before_ms, after_ms)) = image.cut_power() else {
            eprintln!("SKIPPED a power cut: python3 could not shut the file system down");
            writers.iter().for_each(tokio::task::JoinHandle::abort);
            return;
        };
        let mut objects = Objects::new();
        for writer in writers {
            objects.extend(writer.await.unwrap());
        }
        eprintln!(
            "round {round}: {} objects, cut within {} ms",
            objects.len(),
            after_ms - before_ms
        );
        rounds.push((before_ms, objects));
        assert!(node.write(DEVICE, inline("after", 10)).await.is_err());
        wait_for_health(&node, |health| matches!(health, DeviceHealth::Offline(_))).await;
        drop(node);
        image.unmount();
        assert!(image.mount());
    }
    let node = open(&root, RESERVE).unwrap();
    check(&node, &rounds).await;
    let status = node.devices().await.unwrap().remove(0);
    assert_eq!((status.health, status.quarantined), (DeviceHealth::Ready, 0));
}

async fn check(node: &StorageNode, rounds: &[(u64, Objects)]) {
    let mut wrong = 0;
    for (cut_ms, objects) in rounds {
        for (name, history) in objects {
            let found = get(node, name).await.unwrap().map(|bytes| {
                assert!(bytes == pattern(name, bytes.len()), "{name} is not whole");
                bytes.len()
            });
            // The state last acknowledged before the cut, or any later state.
            let sure = history.iter().rposition(|(acked, _)| acked.is_some_and(|at| at < *cut_ms));
            let before = if sure.is_some() { None } else { Some(None) };
            let may = history[sure.unwrap_or(0)..].iter().map(|(_, length)| *length);
            if !before.into_iter().chain(may).any(|length| length == found) {
                eprintln!("{name} has {found:?} bytes after {history:?}, cut at {cut_ms}");
                wrong += 1;
            }
        }
    }
    assert_eq!(wrong, 0, "acknowledged writes were lost");
    check_sums(node).await;
}

/// Checks that sums and entries were cut off at one point (rule H1).
async fn check_sums(node: &StorageNode) {
    let mut after = None;
    loop {
        let audited = node.audit_registers(DEVICE, after).await.unwrap();
        assert_eq!(audited.corrupt, []);
        after = audited.next;
        if after.is_none() {
            return;
        }
    }
}

/// Waits until this many writes were acknowledged, for one minute at most.
async fn wait_for(done: &AtomicU64, writes: u64) {
    let began = Instant::now();
    while done.load(Ordering::Relaxed) < writes {
        assert!(began.elapsed() < Duration::from_mins(1), "{done:?} writes in a minute");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Puts, overwrites and deletes until a write fails; counts acknowledged writes.
async fn work(node: Arc<StorageNode>, done: Arc<AtomicU64>, round: u64, writer: u64) -> Objects {
    let mut objects = Objects::new();
    for number in 0..OBJECTS_MAX {
        let name = format!("{round}-{writer}-{number}");
        let pick = |step: u64| LENGTHS[usize::try_from((number * 7 + writer + step) % 3).unwrap()];
        let mut steps = vec![Some(pick(0))];
        steps.extend((number % 3 == 0).then(|| Some(pick(1))));
        steps.extend((number % 4 == 0).then_some(None));
        let history: &mut ObjectHistory = objects.entry(name.clone()).or_default();
        for step in steps {
            let acknowledged = change(&node, &name, step).await;
            history.push((acknowledged.then(|| SystemClock.now_ms()), step));
            if !acknowledged {
                return objects;
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
    objects
}

/// Puts an object of this length, or deletes it.
async fn change(node: &StorageNode, name: &str, length: Option<usize>) -> bool {
    // The next stamp of a name must be above the previous one.
    tokio::time::sleep(Duration::from_millis(2)).await;
    let outcome = match length {
        None => node.write(DEVICE, write(name, Value::Tombstone)).await,
        Some(2000) => node.write(DEVICE, inline(name, 2000)).await,
        Some(length) => put_object(node, name, length).await,
    };
    outcome.is_ok_and(|reply| reply == WriteReply::Stored)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_floor_votes_and_terms_survive_a_power_cut() {
    let Some(mut image) = Image::new("a power cut over hints", IMAGE_MIB) else { return };
    let root = image.path().join("device");
    let options = || NodeOptions { votes_when_new: false, ..NodeOptions::default() };
    let reopen = || StorageNode::open(vec![config(&root, RESERVE)], options()).unwrap();
    let node = reopen();
    give_fences(&node).await;
    let identity = node.devices().await.unwrap()[0].identity;
    let hints: Vec<_> = (0..200).map(|number| inline(&format!("h{number}"), 2000)).collect();
    for hint in &hints {
        assert_eq!(node.keep_hint(DEVICE, hint.clone()).await.unwrap(), WriteReply::Stored);
    }
    for hint in &hints[..100] {
        node.forget_hint(DEVICE, &hint.key, hint.entry.order).await.unwrap();
    }
    let floor = Stamp::at_ms(SystemClock.now_ms() + 1000);
    node.raise_floor(DEVICE, floor).await.unwrap();
    node.set_voting(DEVICE, true).await.unwrap();
    node.raise_term(DEVICE, Term(9)).await.unwrap();
    node.set_joined(DEVICE, 4).await.unwrap();
    if image.cut_power().is_none() {
        eprintln!("SKIPPED a power cut over hints: python3 could not shut the file system down");
        return;
    }
    assert!(node.keep_hint(DEVICE, inline("after", 10)).await.is_err());
    assert!(node.set_voting(DEVICE, false).await.is_err());
    wait_for_health(&node, |health| matches!(health, DeviceHealth::Offline(_))).await;
    drop(node);
    image.unmount();
    assert!(image.mount());
    let node = reopen();
    let status = node.devices().await.unwrap().remove(0);
    assert_eq!((status.voting, status.hints, status.identity), (true, 100, identity));
    assert_eq!((status.term, status.joined), (Term(9), 4));
    for (number, hint) in hints.iter().enumerate() {
        let view = node.read_hint(DEVICE, &hint.key, Want::EntryAndInline).await.unwrap();
        assert_eq!(view.inline, hint.inline.clone().filter(|_| number >= 100), "{number}");
    }
    assert_eq!(
        node.read(DEVICE, &key("absent"), Want::Entry, Term::ANY).await.unwrap().promise,
        floor
    );
}
