//! The plan, by devices' statuses.

use std::path::PathBuf;
use std::sync::Arc;

use martlet_protocol::DeviceIdentity;
use martlet_protocol::backend::DeviceHealth;

use super::*;
use crate::change::moves::RingMoves;
use crate::testing::growth::{new_device, successor};
use crate::testing::multi_node::ring;

const NEW: DeviceId = DeviceId(4);

/// Returns the ring that adds a fifth device to four.
fn grown() -> Arc<Ring> {
    successor(&ring(0..4), |builder| {
        builder.add(new_device(4)).unwrap();
    })
}

fn status(id: u32, term: Term) -> DeviceStatus {
    DeviceStatus {
        device: DeviceId(id),
        identity: DeviceIdentity([0; 16]),
        voting: true,
        path: PathBuf::new(),
        health: DeviceHealth::Ready,
        total_bytes: 0,
        free_bytes: 0,
        extent_bytes: 0,
        extents: 0,
        quarantined: 0,
        hints: 0,
        term,
        joined: 0,
    }
}

fn all_at(term: Term) -> HashMap<DeviceId, DeviceStatus> {
    (0..5).map(|id| (DeviceId(id), status(id, term))).collect()
}

/// Returns the next action of a process that sees the ring for the first time.
async fn next(ring: &Ring, term: Term, statuses: &HashMap<DeviceId, DeviceStatus>) -> NextAction {
    let mut known = RingMoves::default();
    let mut moves = known.of(ring).await;
    super::next(&mut moves, term, statuses).await
}

#[tokio::test]
async fn a_device_without_a_term_begins_with_the_rings() {
    let (first, grown) = (ring(0..4), grown());
    let statuses = all_at(Term::NONE);
    let change = grown.change();
    assert_eq!(change, first.change() + 1);
    let settled = Term::of(first.change(), Phase::New);
    assert_eq!(next(&first, Term::NONE, &statuses).await, NextAction::Begin(settled));
    assert_eq!(
        next(&grown, Term::NONE, &statuses).await,
        NextAction::Begin(settled),
        "old of the next"
    );
    // One silent device is tolerated in every partition, two are not.
    let mut fewer = statuses.clone();
    fewer.remove(&DeviceId(1));
    assert!(matches!(next(&grown, Term::NONE, &fewer).await, NextAction::Begin(_)));
    fewer.get_mut(&DeviceId(2)).unwrap().voting = false;
    assert!(matches!(next(&grown, Term::NONE, &fewer).await, NextAction::Wait(_)));
}

#[tokio::test]
async fn phases_advance_with_the_reports_of_devices() {
    let grown = grown();
    let at = |phase| Term::of(grown.change(), phase);
    let (old, joint, new) = (at(Phase::Old), at(Phase::Joint), at(Phase::New));
    assert_eq!(next(&grown, old, &all_at(old)).await, NextAction::Begin(joint));
    let mut mute = all_at(old);
    mute.get_mut(&NEW).unwrap().voting = false;
    assert!(matches!(next(&grown, old, &mute).await, NextAction::Wait(_)));
    let mut statuses = all_at(old);
    // Sent to two of five devices: some partitions have no quorum that knows the term.
    statuses.insert(DeviceId(0), status(0, joint));
    statuses.insert(NEW, status(4, joint));
    assert!(matches!(next(&grown, joint, &statuses).await, NextAction::Wait(_)));
    let mut statuses = all_at(joint);
    assert_eq!(next(&grown, joint, &statuses).await, NextAction::Join);
    statuses.get_mut(&NEW).unwrap().joined = grown.change();
    assert_eq!(next(&grown, joint, &statuses).await, NextAction::Begin(new));
    // It lost its contents, whatever it reports.
    statuses.get_mut(&NEW).unwrap().voting = false;
    assert_eq!(next(&grown, joint, &statuses).await, NextAction::Join);
    statuses.remove(&NEW);
    assert_eq!(next(&grown, joint, &statuses).await, NextAction::Join, "silence is no");
    assert_eq!(next(&grown, new, &all_at(new)).await, NextAction::Over);
    let later = Term(new.0 + 1);
    assert_eq!(next(&grown, later, &all_at(later)).await, NextAction::Over, "of another's change");
}

#[tokio::test]
async fn a_ring_before_its_time_is_left_alone() {
    let grown = grown();
    let early = Term(Term::of(grown.change(), Phase::Old).0 - 1);
    assert!(matches!(next(&grown, early, &all_at(early)).await, NextAction::Wait(_)));
    let settled = successor(&grown, |_| {});
    assert_eq!(settled.change(), grown.change());
    let joint = Term::of(grown.change(), Phase::Joint);
    assert!(matches!(next(&settled, joint, &all_at(joint)).await, NextAction::Wait(_)));
}

#[tokio::test]
async fn sources_are_devices_that_received_and_kept_the_term() {
    let grown = grown();
    let joint = Term::of(grown.change(), Phase::Joint);
    let mut known = RingMoves::default();
    let partition = known.of(&grown).await.moving_to(NEW)[0];
    let sets = grown.sets(partition, joint);
    let old: Vec<DeviceId> = sets.set(0).collect();
    let mut statuses = all_at(joint);
    assert_eq!(sources_of(&sets, joint, &statuses), Some(old.clone()));
    statuses.get_mut(&old[1]).unwrap().term = Term(joint.0 - 1);
    assert_eq!(sources_of(&sets, joint, &statuses), Some(vec![old[0], old[2]]));
    statuses.get_mut(&old[2]).unwrap().voting = false;
    assert_eq!(sources_of(&sets, joint, &statuses), None);
}

#[tokio::test]
async fn progress_is_reported_by_holders() {
    let grown = grown();
    let joint = Term::of(grown.change(), Phase::Joint);
    let mut statuses = all_at(joint);
    let moves = grown.moves().len() as u64;
    assert!(moves > 10);
    let mut known = RingMoves::default();
    let planned = known.of(&grown).await;
    let progress = ChangeProgress::of(&planned, joint, &statuses);
    let change = grown.change();
    let expected = ChangeProgress { change, moving: moves, arrived: 0, waits_for: vec![NEW] };
    assert_eq!(progress, expected);
    statuses.get_mut(&NEW).unwrap().joined = grown.change();
    let progress = ChangeProgress::of(&planned, joint, &statuses);
    assert_eq!((progress.arrived, progress.waits_for.is_empty()), (moves, true));
    let over = ChangeProgress::of(&planned, Term::of(grown.change(), Phase::New), &statuses);
    assert_eq!((over.moving, over.arrived), (0, 0));
}
