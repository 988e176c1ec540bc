//! A small S3 in memory beside the real one: random sequences of operations, bad input among them,
//! get the replies that the model gives.
//!
//! * [`generate`] makes a sequence of a seed; [`operation`] is the language of sequences.
//! * [`reference`] is the model; [`expected`] a reply as it expects it.
//! * [`request`] and [`run`] send a sequence to real servers; [`compare`] compares.
//! * [`shrink`] reduces a failing sequence.
//!
//! Not compared: sentences of errors, owners, encryption, access by others than the owner, and
//! replies to requests that run at the same time: `--test cluster` and `--test simulation` check
//! those.
//!
//! Each commit runs the same seeds, so that a difference is one of the commit. `MARTLET_MODEL_SEED=n`
//! runs one seed; `MARTLET_MODEL_SEQUENCES=n` so many from a random one on, as `make model` does.
//! `MARTLET_MODEL_LENGTH=n` sets the number of operations of a sequence. With
//! `MARTLET_MODEL_LIST=1` all seeds run, and each failure is printed.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

mod checksums;
mod compare;
mod expected;
mod generate;
mod names;
mod operation;
mod reference;
mod request;
mod run;
mod shrink;
mod xml;

use std::net::SocketAddr;
use std::time::Instant;

use martlet_tests::Setup;
use martlet_tests::cluster::ClusterPlan;
use rand::Rng;

use self::operation::shown;
use self::reference::Flaw;
use self::run::{Clients, run};
use self::shrink::shrunk;

/// First seed of every test run.
const SEED: u64 = 1;
/// Sequences of every test run against one server.
const SEQUENCES: u64 = 100;
/// Sequences of every test run against a cluster, which is slower.
const SEQUENCES_OF_CLUSTER: u64 = 30;
/// Operations of a sequence.
const LENGTH: u64 = 80;
/// Sequences within which a planted flaw must be found.
const SEQUENCES_TO_CATCH: u64 = 60;
/// Operations that a shrunk sequence of a planted flaw has at most.
const SHRUNK_MAX: usize = 8;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// A store under test, and the number of runs so far: each takes buckets of its own.
struct Store {
    clients: Clients,
    runs: u64,
}

impl Store {
    fn new(addresses: &[SocketAddr]) -> Self {
        Self { clients: Clients::new(addresses), runs: 0 }
    }

    async fn run(&mut self, sequence: &[operation::Numbered], flaw: Flaw) -> Result<(), String> {
        self.runs += 1;
        let prefix = format!("model-{}", self.runs);
        run(&mut self.clients, prefix, sequence, flaw).await
    }

    /// Runs a seed. The error has the shrunk sequence and its failure.
    async fn seed(
        &mut self,
        seed: u64,
        flaw: Flaw,
    ) -> Result<(), (Vec<operation::Numbered>, String)> {
        let length = number("MARTLET_MODEL_LENGTH").unwrap_or(LENGTH);
        let sequence = generate::sequence(seed, usize::try_from(length).unwrap());
        let Err(failure) = self.run(&sequence, flaw).await else { return Ok(()) };
        let store = &tokio::sync::Mutex::new(self);
        let again = |rest: Vec<operation::Numbered>| async move {
            store.lock().await.run(&rest, flaw).await
        };
        Err(shrunk(sequence, failure, again).await)
    }

    /// Runs the seeds that the environment names, or so many.
    async fn pass(&mut self, sequences: u64) {
        let (given, wanted) = (number("MARTLET_MODEL_SEED"), number("MARTLET_MODEL_SEQUENCES"));
        let (first, count) = match (given, wanted) {
            (Some(first), _) => (first, wanted.unwrap_or(1)),
            (None, Some(count)) => (rand::rng().random_range(0..1 << 40), count),
            (None, None) => (SEED, sequences),
        };
        println!("MARTLET_MODEL_SEED={first}, {count} sequences");
        let (begun, mut failures) = (Instant::now(), 0);
        for seed in first..first + count {
            let Err((sequence, failure)) = self.seed(seed, Flaw::None).await else { continue };
            let text = format!("MARTLET_MODEL_SEED={seed}\n{}{failure}", shown(&sequence));
            assert!(number("MARTLET_MODEL_LIST").is_some(), "{text}");
            println!("── {text}");
            failures += 1;
        }
        println!("{count} sequences took {:?}", begun.elapsed());
        assert_eq!(failures, 0, "sequences differ from the model");
    }
}

#[tokio::test]
async fn a_server_answers_as_the_model() {
    let server = Setup::new().start().await;
    Store::new(&[server.s3_address]).pass(SEQUENCES).await;
}

#[tokio::test]
async fn a_cluster_answers_as_the_model_through_two_proxies() {
    let plan = ClusterPlan { nodes: 3, proxies: 2, replicators: false, ..ClusterPlan::default() };
    let cluster = plan.start().await;
    Store::new(&cluster.endpoints()).pass(SEQUENCES_OF_CLUSTER).await;
    cluster.assert_no_panic();
}

/// Finds a planted flaw, and a small sequence that shows it.
async fn caught(flaw: Flaw) {
    let server = Setup::new().start().await;
    let mut store = Store::new(&[server.s3_address]);
    for seed in 0..SEQUENCES_TO_CATCH {
        let Err((sequence, failure)) = store.seed(seed, flaw).await else { continue };
        println!("{flaw:?} was found with seed {seed}:\n{}{failure}", shown(&sequence));
        assert!(sequence.len() <= SHRUNK_MAX, "{} operations are left", sequence.len());
        store.run(&sequence, Flaw::None).await.expect("without the flaw they agree");
        return;
    }
    panic!("{flaw:?} was not found in {SEQUENCES_TO_CATCH} sequences");
}

#[tokio::test]
async fn conditions_that_are_ignored_are_found() {
    caught(Flaw::IgnoresNoneMatch).await;
}

#[tokio::test]
async fn older_versions_that_stay_hidden_are_found() {
    caught(Flaw::HidesOlderVersions).await;
}

#[tokio::test]
async fn prefixes_that_are_not_folded_are_found() {
    caught(Flaw::IgnoresDelimiters).await;
}

#[tokio::test]
async fn etags_of_whole_uploads_are_found() {
    caught(Flaw::HashesWholeUploads).await;
}
