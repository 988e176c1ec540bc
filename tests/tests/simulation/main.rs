//! Simulation of a whole cluster in one thread, on simulated time: proxies, and nodes in memory.
//! The network between them delays, loses, repeats and cuts; nodes and proxies crash, and clocks
//! err. A seed determines every event, so that a failing run can be repeated.
//!
//! * [`run`] runs a seed: [`cluster`], [`client`]s with their [`load`] and [`upload`]s, [`faults`],
//!   [`aftermath`].
//! * [`shrink`] leaves out parts of a failed run ([`reduction`]) until few events are left.
//! * [`versions`]: buckets that keep versions; [`sets`]: checkpoint sets.
//! * [`network`] and [`link`]: the way of calls; [`node`]: crashes and losses of nodes.
//! * [`workers`]: all background work, on replicators that come and go.
//! * [`operator`] changes the [`rings`], [`membership`] spreads them, [`census`] counts.
//! * [`record`]: the history, which the checkers of `martlet_tests` check.
//! * [`planted`]: bugs that the checkers must catch, as they would catch real bugs.
//!
//! Not simulated: bytes on disk and on the wire, threads, and computing time.
//!
//! `MARTLET_SIM_SEED=n` runs one seed and prints its trace; with `MARTLET_SIM_REDUCTION=…`, as a shrunk
//! failure names it, only parts of the run take place. `MARTLET_SIM_SEEDS=n` runs so many seeds, from
//! `MARTLET_SIM_FIRST` on, and stops at the first failure, which it shrinks in at most
//! `MARTLET_SIM_SHRINK=n` runs (600). With `MARTLET_SIM_LIST=1` all seeds run, and each failure is
//! printed on a line.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

mod aftermath;
mod census;
mod chance;
mod client;
mod clock;
mod cluster;
mod faults;
mod link;
mod load;
mod membership;
mod network;
mod node;
mod operator;
mod payload;
mod planted;
mod record;
mod reduction;
mod rings;
mod run;
mod sets;
mod shown;
mod shrink;
mod trace;
mod upload;
mod versions;
mod workers;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::planted::Bug;
use self::reduction::Reduction;
use self::run::{RunOutcome, Subject, run};
use self::shrink::shrink;

/// Number of seeds of every test run.
const SEEDS: u64 = 200;
/// Number of seeds of every test run with checkpoint sets, which take longer.
const SEEDS_OF_SETS: u64 = 60;
/// Number of seeds within which a planted bug must be caught.
const SEEDS_TO_CATCH: u64 = 6000;
/// Number of operations by which each planted bug must be shown.
const OPERATIONS_TO_SHOW: usize = 40;
/// Maximum number of runs that shrink a failed run.
const RUNS_TO_SHRINK: usize = 600;
/// Failing seeds of a planted bug, of which one must shrink: a failure that needs an exact order of messages
/// loses this order with each operation that is left out.
const FAILURES_TO_SHRINK: usize = 3;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// Work of the runs that passed.
#[derive(Default)]
struct Passed {
    operations: AtomicU64,
    /// Simulated milliseconds under load and faults.
    simulated_ms: AtomicU64,
}

impl Passed {
    fn add(&self, operations: usize, under_load: Duration) {
        let ms = u64::try_from(under_load.as_millis()).expect("runs are short");
        self.operations.fetch_add(operations as u64, Ordering::Relaxed);
        self.simulated_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Sums, and the simulated hours of an hour on this machine.
    fn summary(self, took: Duration) -> String {
        let operations = self.operations.into_inner();
        let hours = Duration::from_millis(self.simulated_ms.into_inner()).as_secs_f64() / 3600.0;
        let pace = hours * 3600.0 / took.as_secs_f64();
        format!(
            "{operations} operations of clients, {hours:.2} simulated hours of load and faults \
             in {:.1} s: {pace:.0} hours an hour",
            took.as_secs_f64()
        )
    }
}

/// Runs seeds on all cores until one fails. Returns sums of the others and the failed run.
fn first_failure(
    seeds: impl Iterator<Item = u64> + Send,
    (subject, bug): (Subject, Bug),
    counts: impl Fn(&str) -> bool + Sync,
) -> (Passed, Option<RunOutcome>) {
    let seeds = Mutex::new(seeds);
    let (passed, failed) = (Passed::default(), Mutex::new(None::<RunOutcome>));
    let worker = || {
        while failed.lock().is_none() {
            let Some(seed) = seeds.lock().next() else { return };
            let ran = run(seed, subject, bug, Reduction::default());
            match &ran.verdict {
                Ok(count) => {
                    passed.add(*count, ran.setup.under_load);
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
    (passed, failed.into_inner())
}

#[test]
fn all_consistency_rules_hold_under_faults() {
    pass(Subject::Objects, SEEDS);
}

#[test]
fn checkpoints_are_whole_or_absent_under_faults() {
    pass(Subject::Sets, SEEDS_OF_SETS);
}

/// Runs the seeds that the environment names, or so many.
fn pass(subject: Subject, seeds: u64) {
    if let Some(seed) = number("MARTLET_SIM_SEED") {
        let ran = run(seed, subject, Bug::None, reduction());
        println!("{}", ran.trace);
        assert!(ran.verdict.is_ok(), "{}", ran.failure().unwrap());
        return;
    }
    let first = number("MARTLET_SIM_FIRST").unwrap_or(0);
    let count = number("MARTLET_SIM_SEEDS").unwrap_or(seeds);
    if number("MARTLET_SIM_LIST").is_some() {
        let wrong = |seed| {
            let ran = run(seed, subject, Bug::None, Reduction::default());
            ran.verdict.err().map(|wrong| format!("{seed} {wrong}"))
        };
        let all: Vec<String> =
            (first..first + count).filter_map(wrong).inspect(|line| println!("{line}")).collect();
        assert!(all.is_empty(), "{} of {count} seeds from {first} on fail", all.len());
        return;
    }
    let begun = Instant::now();
    let (passed, failed) = first_failure(first..first + count, (subject, Bug::None), |_| true);
    if let Some(failed) = failed {
        println!("{}", failed.failure().expect("it has failed"));
        let runs = number("MARTLET_SIM_SHRINK");
        let runs =
            runs.map_or(RUNS_TO_SHRINK, |runs| usize::try_from(runs).expect("a number of runs"));
        let smallest = shrink(failed, (subject, Bug::None), runs);
        panic!("{}\n{}", smallest.failure().expect("it has failed"), smallest.account());
    }
    println!("{count} seeds from {first} on: {}", passed.summary(begun.elapsed()));
}

/// The reduction that the environment names.
fn reduction() -> Reduction {
    let text = std::env::var("MARTLET_SIM_REDUCTION").unwrap_or_default();
    text.parse().unwrap_or_else(|wrong| panic!("MARTLET_SIM_REDUCTION: {wrong}"))
}

#[test]
fn a_seed_repeats_to_the_byte() {
    let of = |subject| [1, 2, 3, 5, 8, 13].map(|seed| (seed, subject));
    for (seed, subject) in [of(Subject::Objects), of(Subject::Sets)].concat() {
        let once = || run(seed, subject, Bug::None, Reduction::default());
        let (one, again) = (once(), once());
        assert!(one.trace.len() > 10_000, "seed {seed} does little");
        let differ = one.trace.lines().zip(again.trace.lines()).find(|(one, again)| one != again);
        assert_eq!(differ, None, "seed {seed} does not repeat");
        assert_eq!(one.trace, again.trace);
        assert_eq!(one.verdict, again.verdict);
    }
    let trace = |seed| run(seed, Subject::Objects, Bug::None, Reduction::default()).trace;
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
    let mut from = 0;
    for _ in 0..FAILURES_TO_SHRINK {
        let (_, failed) = first_failure(from..SEEDS_TO_CATCH, (subject, bug), &counts);
        let failed =
            failed.unwrap_or_else(|| panic!("{bug:?} was not caught in {SEEDS_TO_CATCH} seeds"));
        from = failed.seed + 1;
        let before = failed.setup.parts.operations.len();
        let smallest = shrink(failed, (subject, bug), RUNS_TO_SHRINK);
        let parts = &smallest.setup.parts;
        println!(
            "{bug:?} was caught, and shown by {} of {before} operations, {} faults and {} ring \
             changes: {}\n{}",
            parts.operations.len(),
            parts.faults.len(),
            parts.ring_changes,
            smallest.failure().unwrap(),
            smallest.account()
        );
        if parts.operations.len() <= OPERATIONS_TO_SHOW {
            return;
        }
    }
    panic!("{bug:?} does not shrink: {FAILURES_TO_SHRINK} seeds failed");
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
