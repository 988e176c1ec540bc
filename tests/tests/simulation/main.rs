//! Simulation of a whole cluster in one thread, on simulated time: proxies, and nodes in memory.
//! The network between them delays, loses, repeats and cuts; nodes and proxies crash, and clocks
//! err. A seed determines every event, so that a failing run can be repeated.
//!
//! * [`run`] runs a seed: [`cluster`], [`client`]s with their [`upload`]s, [`faults`],
//!   [`aftermath`].
//! * [`versions`]: buckets that keep versions; [`sets`]: checkpoint sets.
//! * [`network`] and [`link`]: the way of calls; [`node`]: crashes and losses of nodes.
//! * [`workers`]: all background work, on replicators that come and go.
//! * [`operator`] changes the [`rings`], [`membership`] spreads them, [`census`] counts.
//! * [`record`]: the history, which the checkers of `martlet_tests` check.
//! * [`planted`]: bugs that the checkers must catch, as they would catch real bugs.
//!
//! Not simulated: bytes on disk and on the wire, threads, and computing time.
//!
//! `MARTLET_SIM_SEED=n` runs one seed and prints its trace. `MARTLET_SIM_SEEDS=n` runs so many
//! seeds, from `MARTLET_SIM_FIRST` on, and stops at the first failure. With `MARTLET_SIM_LIST=1`
//! all seeds run, and each failure is printed on a line.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

mod aftermath;
mod census;
mod chance;
mod client;
mod clock;
mod cluster;
mod faults;
mod link;
mod membership;
mod network;
mod node;
mod operator;
mod payload;
mod planted;
mod record;
mod rings;
mod run;
mod sets;
mod shown;
mod trace;
mod upload;
mod versions;
mod workers;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;

use self::planted::Bug;
use self::run::{RunOutcome, Subject, run};

/// Number of seeds of every test run.
const SEEDS: u64 = 200;
/// Number of seeds of every test run with checkpoint sets, which take longer.
const SEEDS_OF_SETS: u64 = 60;
/// Number of seeds within which a planted bug must be caught.
const SEEDS_TO_CATCH: u64 = 6000;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// Runs seeds on all cores until one fails. Returns the number of operations and the failed run.
fn first_failure(
    seeds: impl Iterator<Item = u64> + Send,
    (subject, bug): (Subject, Bug),
    counts: impl Fn(&str) -> bool + Sync,
) -> (u64, Option<RunOutcome>) {
    let seeds = Mutex::new(seeds);
    let (operations, failed) = (AtomicU64::new(0), Mutex::new(None::<RunOutcome>));
    let worker = || {
        while failed.lock().is_none() {
            let Some(seed) = seeds.lock().next() else { return };
            let ran = run(seed, subject, bug);
            match &ran.verdict {
                Ok(count) => {
                    operations.fetch_add(*count as u64, Ordering::Relaxed);
                    continue;
                }
                Err(wrong) if !counts(wrong) => continue,
                Err(_) => {}
            }
            let mut failed = failed.lock();
            if failed.as_ref().is_none_or(|other| other.seed > seed) {
                *failed = Some(ran);
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(worker))));
    (operations.into_inner(), failed.into_inner())
}

#[test]
fn whatever_goes_wrong_every_promise_is_kept() {
    pass(Subject::Objects, SEEDS);
}

#[test]
fn whatever_goes_wrong_checkpoints_are_whole_or_not_there() {
    pass(Subject::Sets, SEEDS_OF_SETS);
}

/// Runs the seeds that the environment names, or so many.
fn pass(subject: Subject, seeds: u64) {
    if let Some(seed) = number("MARTLET_SIM_SEED") {
        let ran = run(seed, subject, Bug::None);
        println!("{}", ran.trace);
        assert!(ran.verdict.is_ok(), "{}", ran.failure().unwrap());
        return;
    }
    let first = number("MARTLET_SIM_FIRST").unwrap_or(0);
    let count = number("MARTLET_SIM_SEEDS").unwrap_or(seeds);
    if number("MARTLET_SIM_LIST").is_some() {
        let wrong = |seed| {
            run(seed, subject, Bug::None).verdict.err().map(|wrong| format!("{seed} {wrong}"))
        };
        let all: Vec<String> =
            (first..first + count).filter_map(wrong).inspect(|line| println!("{line}")).collect();
        assert!(all.is_empty(), "{} of {count} seeds from {first} on fail", all.len());
        return;
    }
    let (operations, failed) = first_failure(first..first + count, (subject, Bug::None), |_| true);
    if let Some(failure) = failed.and_then(|ran| ran.failure()) {
        panic!("{failure}");
    }
    println!("{count} seeds from {first} on: {operations} operations of clients");
}

#[test]
fn a_seed_repeats_to_the_byte() {
    let of = |subject| [1, 2, 3, 5, 8, 13].map(|seed| (seed, subject));
    for (seed, subject) in [of(Subject::Objects), of(Subject::Sets)].concat() {
        let (one, again) = (run(seed, subject, Bug::None), run(seed, subject, Bug::None));
        assert!(one.trace.len() > 10_000, "seed {seed} does little");
        let differ = one.trace.lines().zip(again.trace.lines()).find(|(one, again)| one != again);
        assert_eq!(differ, None, "seed {seed} does not repeat");
        assert_eq!(one.trace, again.trace);
        assert_eq!(one.verdict, again.verdict);
    }
    let trace = |seed| run(seed, Subject::Objects, Bug::None).trace;
    assert_ne!(trace(1), trace(2));
}

fn caught(bug: Bug) {
    caught_in(Subject::Objects, bug, |_| true);
}

/// Catches a bug by the checker of sets: other checks may fail too, and don't count.
fn caught_in_sets(bug: Bug) {
    caught_in(Subject::Sets, bug, |wrong| wrong.contains("checkpoint sets: "));
}

fn caught_in(subject: Subject, bug: Bug, counts: impl Fn(&str) -> bool + Sync) {
    let (_, failed) = first_failure(0..SEEDS_TO_CATCH, (subject, bug), counts);
    let failed =
        failed.unwrap_or_else(|| panic!("{bug:?} was not caught in {SEEDS_TO_CATCH} seeds"));
    println!("{bug:?} was caught: {}", failed.failure().unwrap());
}

#[test]
fn replicas_that_forget_promises_are_caught() {
    caught(Bug::ForgetsPromises);
}

#[test]
fn acknowledging_at_one_replica_is_caught() {
    caught(Bug::AcknowledgesAlone);
}

#[test]
fn reading_from_one_replica_is_caught() {
    caught(Bug::ReadsOneReplica);
}

#[test]
fn losing_writes_at_a_crash_is_caught() {
    caught(Bug::LosesWritesAtCrash);
}

#[test]
fn listing_from_one_replica_is_caught() {
    caught(Bug::ListsOneReplica);
}

#[test]
fn replicas_that_forget_deletes_are_caught() {
    caught(Bug::ForgetsDeletes);
}

#[test]
fn counting_one_of_two_sets_is_caught() {
    caught(Bug::CountsOneSet);
}

#[test]
fn new_holders_that_decide_before_they_hold_anything_are_caught() {
    caught(Bug::BeginsUnjoined);
}

#[test]
fn collecting_without_asking_everyone_is_caught() {
    caught(Bug::CollectsInSilence);
}

#[test]
fn overwriting_versions_is_caught() {
    caught(Bug::OverwritesVersions);
}

#[test]
fn letting_go_before_others_are_seen_to_hold_is_caught() {
    caught(Bug::ReleasesUnverified);
}

#[test]
fn publishing_before_pinning_is_caught() {
    caught_in_sets(Bug::PublishesUnpinned);
}

#[test]
fn noting_the_list_of_one_replica_is_caught() {
    caught_in_sets(Bug::ListsOneReplica);
}

#[test]
fn unpinning_before_hiding_is_caught() {
    caught_in_sets(Bug::UnpinsBeforeHiding);
}

#[test]
fn committing_at_each_write_is_caught() {
    caught_in_sets(Bug::CommitsAtEachWrite);
}
