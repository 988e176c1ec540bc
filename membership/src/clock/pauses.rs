//! Processes whose ticks stood still, and majorities whose clocks are wrong.

use std::time::Duration;

use martlet_protocol::Clock;

use super::tests::{NOON_MS, Setup, pass, setup};
use super::{ClockReading, LAG_MS_MAX, SAMPLE_AGE_MS_MAX, STEP_MS_MAX, Ticks};

const HOURS_MS: u64 = 3 * 60 * 60 * 1000;
const YEAR_MS: u64 = 365 * 24 * 60 * 60 * 1000;
const OTHERS: [&str; 2] = ["a", "b"];

/// A settled node among two others, at noon.
fn settled(votes: bool) -> Setup {
    let node = setup(NOON_MS, votes);
    for other in OTHERS {
        node.observe_both(other, NOON_MS, NOON_MS);
    }
    assert!(node.clock.settle(&OTHERS));
    node
}

#[test]
fn ticks_count_time() {
    let ticks = Ticks::new();
    assert!(ticks.now_ms() < 60_000);
}

/// The pause shows in the others' times alone. The own clock stays behind until it is set.
#[test]
fn after_a_pause_it_takes_the_time_of_most_nodes_at_once() {
    for votes in [true, false] {
        let node = settled(votes);
        pass(&node, 1000);
        let now_ms = NOON_MS + HOURS_MS;
        node.observe_both("a", now_ms, now_ms);
        node.clock.settle(&OTHERS);
        let lag_ms = now_ms - node.clock.now_ms();
        assert!(lag_ms > HOURS_MS - 2000, "a minority shows nothing: {lag_ms}");
        node.observe_both("b", now_ms, now_ms);
        node.clock.settle(&OTHERS);
        assert_eq!(node.clock.now_ms(), now_ms);
        node.own.advance_ms(HOURS_MS - 1000);
        for _ in 0..100 {
            pass(&node, 2000);
            for other in OTHERS {
                node.observe_both(other, node.own.now_ms(), node.own.now_ms());
            }
            node.clock.settle(&OTHERS);
        }
        assert_eq!(node.clock.now_ms(), node.own.now_ms(), "it stays right");
    }
}

#[test]
fn one_later_cluster_time_is_a_doubt_until_the_jump_or_until_it_is_old() {
    assert!(setup(NOON_MS, true).clock.is_in_doubt(), "no majority of clocks is known");
    let node = settled(true);
    assert!(!node.clock.is_in_doubt());
    node.observe_both("a", NOON_MS, NOON_MS + LAG_MS_MAX.unsigned_abs());
    assert!(!node.clock.is_in_doubt(), "such a lag is made up by steps");
    let later_ms = NOON_MS + HOURS_MS;
    node.observe_both("a", later_ms, later_ms);
    assert!(node.clock.is_in_doubt());
    node.observe_both("b", later_ms, later_ms);
    node.clock.settle(&OTHERS);
    assert!(!node.clock.is_in_doubt());
    node.observe_both("b", later_ms, later_ms + HOURS_MS);
    assert!(node.clock.is_in_doubt());
    pass(&node, SAMPLE_AGE_MS_MAX + 1);
    assert!(!node.clock.is_in_doubt());
}

/// Of four nodes two are no majority, though they are the lower median with the paused one's.
#[test]
fn half_of_the_nodes_is_no_majority() {
    let node = setup(NOON_MS, true);
    let others = ["a", "b", "c"];
    for other in others {
        node.observe_both(other, NOON_MS, NOON_MS);
    }
    node.clock.settle(&others);
    let later_ms = NOON_MS + HOURS_MS;
    for other in ["a", "b"] {
        node.observe_both(other, later_ms, later_ms);
    }
    node.clock.settle(&others);
    assert!(node.clock.now_ms() <= NOON_MS + STEP_MS_MAX.unsigned_abs());
    node.observe_both("c", later_ms, later_ms);
    node.clock.settle(&others);
    assert_eq!(node.clock.now_ms(), later_ms);
}

/// All machines' clocks are set a year ahead: cluster time follows slowly, and no process jumps, for none is late.
#[test]
fn a_wrong_majority_of_clocks_makes_no_process_jump() {
    let nodes = [settled(true), settled(true), settled(true)];
    for node in &nodes {
        node.own.advance_ms(YEAR_MS);
    }
    for round in 1..=200_u64 {
        for node in &nodes {
            pass(node, 2000);
        }
        let times = nodes.each_ref().map(|node| node.clock.now_ms());
        for (at, node) in nodes.iter().enumerate() {
            let mut others = (0..3).filter(|other| *other != at);
            for name in OTHERS {
                let other = others.next().unwrap();
                node.observe_both(name, nodes[other].own.now_ms(), times[other]);
            }
            node.clock.settle(&OTHERS);
            let moved = node.clock.now_ms() - NOON_MS - round * 2000;
            assert!(moved <= round * STEP_MS_MAX.unsigned_abs(), "round {round}: {moved}");
        }
    }
}

#[test]
fn a_small_lag_is_made_up_by_steps_and_a_lead_never() {
    let node = settled(true);
    let late_ms = NOON_MS + LAG_MS_MAX.unsigned_abs();
    for other in OTHERS {
        node.observe_both(other, late_ms, late_ms);
    }
    node.clock.settle(&OTHERS);
    assert_eq!(node.clock.now_ms(), NOON_MS + STEP_MS_MAX.unsigned_abs());
    let before = node.clock.now_ms();
    for other in OTHERS {
        node.observe_both(other, NOON_MS - HOURS_MS, NOON_MS - HOURS_MS);
    }
    node.clock.settle(&OTHERS);
    assert_eq!(node.clock.now_ms(), before);
}

/// Nodes of earlier releases send their machines' time alone.
#[test]
fn without_cluster_times_it_goes_by_steps() {
    let node = settled(true);
    let later_ms = NOON_MS + HOURS_MS;
    for other in OTHERS {
        let reading = ClockReading { own_ms: later_ms, cluster_ms: None };
        node.clock.observe(other, reading, Duration::ZERO);
    }
    node.clock.settle(&OTHERS);
    assert_eq!(node.clock.now_ms(), NOON_MS + STEP_MS_MAX.unsigned_abs());
}

/// A sample of before the pause has a short round trip, and would be kept for half a minute of ticks.
#[test]
fn a_sample_that_contradicts_the_kept_one_replaces_it() {
    let node = settled(true);
    let later_ms = NOON_MS + HOURS_MS;
    let reading = ClockReading { own_ms: later_ms, cluster_ms: None };
    node.clock.observe("a", reading, Duration::from_millis(800));
    assert!(node.clock.ahead_ms("a").is_some_and(|ahead| ahead.unsigned_abs() >= HOURS_MS));
}

#[test]
fn it_shows_cluster_time_to_others_once_it_knows_it() {
    let node = setup(NOON_MS, true);
    assert_eq!(node.clock.settled_ms(), None);
    for other in OTHERS {
        node.observe_both(other, NOON_MS + 7, NOON_MS + 7);
    }
    node.clock.settle(&OTHERS);
    assert_eq!(node.clock.settled_ms(), Some(NOON_MS + 7));
}
