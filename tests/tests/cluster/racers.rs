//! Fifty racers through three proxies. Exactly one wins when all create a key, and none overwrites
//! another when all increment a counter (rule R7).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use martlet_tests::checkers::{Invocation, Response, Value};
use martlet_tests::cluster::rings::{DATA, INDEX};
use martlet_tests::cluster::{ClusterPlan, TestCluster};
use martlet_tests::probe::PATIENCE;
use martlet_tests::recorded::{RecordedClient, Recorder, WriteMethod};

use super::recorder;

const RACERS: usize = 50;
const ROUNDS: usize = 100;
const ROUNDS_WITH_DEATHS: usize = 30;
const ROUNDS_WITH_CHANGES: usize = 30;
const COUNTERS: usize = 9;

/// Counts of the rounds of a race.
#[derive(Debug, Default)]
struct Races {
    won: usize,
    /// Rounds whose winner received 503.
    untold: usize,
    unknown: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r7_of_fifty_racers_one_wins() {
    let cluster =
        ClusterPlan { nodes: 3, replicators: false, ..ClusterPlan::default() }.start().await;
    let recorder = recorder(&cluster).await;
    let (mut racers, mut races) = (racers(&cluster, &recorder), Races::default());
    let begun = Instant::now();
    for round in 0..ROUNDS {
        races.count(&race(&mut racers, round).await);
    }
    println!("{ROUNDS} races took {:?}: {races:?}", begun.elapsed());
    races.assert_reported(ROUNDS);
    recorder.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r7_of_fifty_racers_one_wins_while_a_node_dies() {
    let mut cluster = ClusterPlan { replicators: false, ..ClusterPlan::default() }.start().await;
    let recorder = recorder(&cluster).await;
    let (mut racers, mut races) = (racers(&cluster, &recorder), Races::default());
    for round in 0..ROUNDS_WITH_DEATHS {
        let node = round / 2 % 4;
        if round % 2 == 0 {
            let kill = async {
                tokio::time::sleep(Duration::from_millis(5)).await;
                cluster.nodes[node].kill();
            };
            let (raced, ()) = tokio::join!(race(&mut racers, round), kill);
            races.count(&raced);
        } else {
            races.count(&race(&mut racers, round).await);
            cluster.nodes[node].start().await;
        }
    }
    println!("with a node killed in every other of {ROUNDS_WITH_DEATHS} races: {races:?}");
    recorder.finish(&cluster).await;
}

/// Keys move to other devices between promise and accept, so the deciding devices change (rules P1
/// and P2).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r7_p2_of_fifty_racers_one_wins_while_a_ring_changes() {
    let mut cluster = ClusterPlan { nodes: 3, ..ClusterPlan::in_a_hurry() }.start().await;
    let recorder = recorder(&cluster).await;
    let (mut racers, mut races) = (racers(&cluster, &recorder), Races::default());
    cluster.add_nodes(&[4, 5]);
    for name in [INDEX, DATA] {
        assert!(cluster.push(0, name, &cluster.rings.ring(name)).await, "{name} is refused");
    }
    cluster.start_all().await;
    let begun = Instant::now();
    let mut rounds = 0;
    while rounds < ROUNDS_WITH_CHANGES || begun.elapsed() < Duration::from_secs(5) {
        races.count(&race(&mut racers, rounds).await);
        rounds += 1;
    }
    println!("while a ring changed, {rounds} races took {:?}: {races:?}", begun.elapsed());
    assert!(races.won * 2 > rounds, "hardly anybody won: {races:?}");
    cluster.until_clean(PATIENCE).await;
    recorder.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r7_counting_up_by_compare_and_set_loses_nothing() {
    let cluster =
        ClusterPlan { nodes: 3, replicators: false, ..ClusterPlan::default() }.start().await;
    let recorder = recorder(&cluster).await;
    let (first, outcome) = recorder.client(&cluster, 0).put("counter").await;
    assert_eq!(outcome, Response::Done);
    let until = Instant::now() + Duration::from_secs(4);
    let counters = (0..COUNTERS).map(|number| count(recorder.client(&cluster, number), until));
    let counted: usize = join_all(counters).await.into_iter().sum();
    let last = recorder.client(&cluster, 1).get_surely("counter").await.unwrap();
    let steps = steps(&recorder, first, last);
    println!("{COUNTERS} clients counted to {counted}, the counter says {}", steps.len());
    let unknown = steps.iter().filter(|outcome| **outcome == Response::Unknown).count();
    assert_eq!(steps.len() - unknown, counted, "increments were lost");
    assert!(counted > 20, "they hardly get on: {counted}");
    recorder.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r7_of_racers_by_put_by_parts_and_by_copy_one_wins() {
    let cluster =
        ClusterPlan { nodes: 3, replicators: false, ..ClusterPlan::default() }.start().await;
    let recorder = recorder(&cluster).await;
    let mut racers: Vec<RecordedClient> =
        racers(&cluster, &recorder).into_iter().take(18).collect();
    for (racer, way) in racers
        .iter_mut()
        .zip([WriteMethod::Put, WriteMethod::Parts, WriteMethod::Copy].iter().cycle())
    {
        racer.way = *way;
    }
    let mut races = Races::default();
    for round in 0..10 {
        races.count(&race(&mut racers, round).await);
    }
    println!("{races:?}");
    races.assert_reported(10);
    recorder.finish(&cluster).await;
}

fn racers(cluster: &TestCluster, recorder: &Arc<Recorder>) -> Vec<RecordedClient> {
    (0..RACERS).map(|number| recorder.client(cluster, number)).collect()
}

async fn race(
    racers: &mut [RecordedClient],
    round: usize,
) -> (Vec<(Value, Response)>, Option<Value>) {
    let key = format!("race/{round:03}");
    let results = join_all(racers.iter_mut().map(|racer| racer.create(&key))).await;
    let reader = round % racers.len();
    let found = racers[reader].get_surely(&key).await;
    (results, found)
}

impl Races {
    /// Asserts that every round had a winner. Without faults at most one winner in twenty may
    /// receive 503, because another client's ballot replaced its accept.
    fn assert_reported(&self, rounds: usize) {
        assert_eq!(self.won + self.untold, rounds, "{self:?}");
        assert!(self.untold * 20 <= rounds, "{self:?}");
    }

    fn count(&mut self, (results, found): &(Vec<(Value, Response)>, Option<Value>)) {
        let of = |wanted: Response| results.iter().filter(move |(_, outcome)| *outcome == wanted);
        let winners: Vec<_> = of(Response::Done).collect();
        assert!(winners.len() <= 1, "{} won: {winners:?}", winners.len());
        let winner = winners.first().map(|(value, _)| *value);
        self.unknown += of(Response::Unknown).count();
        match (winner, *found) {
            (Some(_), _) => {
                assert_eq!(winner, *found, "another than the winner is there");
                self.won += 1;
            }
            (None, Some(found)) => {
                let untold = of(Response::Unknown).any(|(value, _)| *value == found);
                assert!(untold, "{found} is there, and its racer was refused");
                self.untold += 1;
            }
            (None, None) => {
                assert_eq!(of(Response::Refused).count(), 0, "refused, and nothing is there");
            }
        }
    }
}

/// Increments for a time. Returns the number of acknowledged increments.
async fn count(mut client: RecordedClient, until: Instant) -> usize {
    let mut counted = 0;
    while Instant::now() < until {
        let Response::Read(Some(seen)) = client.get("counter").await else { continue };
        let (_, outcome) = client.replace("counter", seen).await;
        counted += usize::from(outcome == Response::Done);
    }
    counted
}

/// Outcomes of the writes that led from the first value to the last, newest first.
fn steps(recorder: &Recorder, first: Value, last: Value) -> Vec<Response> {
    let history = recorder.history();
    let replaced: HashMap<Value, (Value, Response)> = history
        .operations
        .into_iter()
        .filter_map(|it| match it.call {
            Invocation::Replace { expected, value } => Some((value, (expected, it.outcome))),
            _ => None,
        })
        .collect();
    let (mut steps, mut at) = (Vec::new(), last);
    while at != first {
        let (before, outcome) = replaced.get(&at).expect("every value replaced another");
        steps.push(outcome.clone());
        at = *before;
    }
    steps
}
