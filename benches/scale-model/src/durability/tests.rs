//! Simulated losses beside closed forms.

use super::{Experiment, FailureRates, Repairs};
use crate::cluster::{Placement, Policy, Shape, build};
use crate::markov::Replicas;
use crate::random::Random;
use crate::repair::{WalkTimes, Walks};

const SHAPE: Shape = Shape { racks: 6, nodes_a_rack: 1, devices_a_node: 2 };

fn placement(policy: Policy) -> Placement {
    let ring = build(SHAPE, policy, 1).unwrap().ring().unwrap();
    Placement::new(SHAPE, policy, &ring).unwrap()
}

fn experiment(placement: &Placement, device: f64) -> Experiment<'_> {
    Experiment {
        placement,
        rates: FailureRates { device, node: 0.0, rack: 0.0 },
        repairs: Repairs::Fixed(50.0),
        acceleration: 1.0,
        rack_boost: 1.0,
        seed: 11,
    }
}

/// Lost partitions a year by the closed form.
fn closed_form(placement: &Placement, failures: f64, repair: f64) -> f64 {
    let policy = placement.policy;
    let (width, spare) = (u32::from(policy.width), u32::from(policy.spare));
    let one = Replicas { width, spare, failures, repair };
    f64::from(placement.partitions()) * one.losses() * super::YEAR_H
}

#[test]
fn both_estimates_agree_with_the_closed_form() {
    for policy in [Policy::ALL[0], Policy::ALL[1]] {
        let placement = placement(policy);
        // Once in 4,000 hours: 1.2 % of replicas are missing, and losses are many.
        let failures = 1.0 / 4000.0;
        let outcome = experiment(&placement, failures).run(600, || ());
        let known = closed_form(&placement, failures, 50.0);
        for estimate in [outcome.exposed, outcome.counted] {
            assert!(estimate.contains(known), "{}: {estimate:?}, not {known}", policy.name);
            assert!(estimate.high - estimate.low < known, "{estimate:?} says nothing");
        }
        assert!((outcome.repair_h - 50.0).abs() < 1e-6);
    }
}

#[test]
fn accelerated_failures_give_the_slow_rate() {
    let placement = placement(Policy::ALL[0]);
    let slow = 1.0 / 40_000.0;
    let fast = Experiment { acceleration: 10.0, ..experiment(&placement, slow) };
    let outcome = fast.run(400, || ());
    let known = closed_form(&placement, slow, 50.0);
    assert!(outcome.losses > 100, "{} losses", outcome.losses);
    // The closed form of the accelerated rates, scaled back, lies a few percent beside it.
    assert!((outcome.exposed.mean / known - 1.0).abs() < 0.15, "{outcome:?}, not {known}");
    assert!((outcome.counted.mean / known - 1.0).abs() < 0.35, "{outcome:?}, not {known}");
}

#[test]
fn lost_racks_weigh_as_much_as_they_are_rare() {
    let placement = placement(Policy::ALL[0]);
    let rates = FailureRates { device: 1.0 / 5000.0, node: 0.0, rack: 1.0 / 50_000.0 };
    let plain = Experiment { rates, ..experiment(&placement, 0.0) };
    let boosted = Experiment { rack_boost: 2.0, seed: 5, ..plain.clone() };
    let known = closed_form(&placement, rates.of_replica(), 50.0);
    for outcome in [plain.run(600, || ()), boosted.run(1500, || ())] {
        let wide = (outcome.exposed.mean / known - 1.0).abs() < 0.2;
        assert!(wide, "{:?}, not {known}", outcome.exposed);
    }
}

#[test]
fn a_seed_gives_one_outcome() {
    let placement = placement(Policy::ALL[1]);
    let times = WalkTimes { lanes: 1, walk: 40.0, visit: 0.0, copy: 0.01, ingest: 0.0 };
    let run = |seed| {
        let walks = Walks::new(&placement, 6, times, &mut Random::new(seed));
        let repairs = Repairs::Walks { delay: 4.0, walks };
        let it = Experiment { repairs, seed, ..experiment(&placement, 1.0 / 2500.0) };
        format!("{:?}", it.run(20, || ()))
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn repairs_by_walks_agree_with_the_closed_form_of_their_mean() {
    let placement = placement(Policy::ALL[0]);
    let times = WalkTimes { lanes: 1, walk: 60.0, visit: 0.0, copy: 0.0, ingest: 0.0 };
    let walks = Walks::new(&placement, 6, times, &mut Random::new(2));
    let repairs = Repairs::Walks { delay: 10.0, walks };
    let failures = 1.0 / 5000.0;
    let outcome = Experiment { repairs, ..experiment(&placement, failures) }.run(1500, || ());
    // Two givers pass within 40 hours on average. A device's walk orders its partitions, so repairs
    // of one device are not independent of each other; those of one partition nearly are.
    assert!((40.0..60.0).contains(&outcome.repair_h), "{}", outcome.repair_h);
    let known = closed_form(&placement, failures, outcome.repair_h);
    let ratio = outcome.exposed.mean / known;
    assert!((0.7..1.4).contains(&ratio), "{ratio}: {outcome:?}, not {known}");
}
