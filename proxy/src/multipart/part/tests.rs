//! Order of the writes of a part.

use martlet_protocol::WriterId;

use super::*;

const DAY_MS: u64 = 24 * 3600 * 1000;

/// A write with an order of its own proxy.
fn at(modified_ms: u64, order_ms: u64, writer: u64) -> WriteTime {
    let order = Stamp { writer: WriterId(writer), ..Stamp::at_ms(order_ms) };
    WriteTime { modified_ms: DAY_MS + modified_ms, order, is_own: true }
}

fn written(ms: u64, writer: u64) -> WriteTime {
    at(ms, DAY_MS + ms, writer)
}

/// A write that a worker or another proxy settled.
fn settled(modified_ms: u64, order_ms: u64, worker: u64) -> WriteTime {
    WriteTime { is_own: false, ..at(modified_ms, order_ms, worker) }
}

/// Returns true if the other write replaces the first one, whichever is noted first.
fn is_superseded(write: WriteTime, other: WriteTime) -> bool {
    let supersede = |both: [WriteTime; 2]| {
        let mut newest = NewestWrites::default();
        for time in both {
            newest.note(time);
        }
        newest.supersedes(write)
    };
    let found = supersede([write, other]);
    assert_eq!(supersede([other, write]), found);
    found
}

#[test]
fn m4_a_write_is_superseded_only_by_one_that_certainly_came_later() {
    let write = written(1000, 1);
    for (other, is_later) in [
        (written(1001, 1), true),
        (at(1000, DAY_MS + 1001, 1), true),
        (written(999, 1), false),
        (written(1000 + CLOCK_SKEW_MS_MAX, 2), false),
        (written(1001 + CLOCK_SKEW_MS_MAX, 2), true),
    ] {
        assert_eq!(is_superseded(write, other), is_later, "{other:?}");
    }
}

#[test]
fn m4_an_order_that_rose_supersedes_nothing() {
    let newer = written(5000, 1);
    // One process settles both, the newer one first.
    let by_proxy = (at(1000, 2 * DAY_MS, 1), at(5000, 2 * DAY_MS - 1, 1));
    let by_worker = (settled(1000, 2 * DAY_MS, 7), settled(5000, 2 * DAY_MS - 1, 7));
    for (raised, both) in [by_proxy, by_worker] {
        assert!(!is_superseded(newer, raised) && !is_superseded(raised, newer), "{raised:?}");
        assert!(raised < newer, "listings show the newer one");
        assert!(!is_superseded(both, raised) && !is_superseded(raised, both), "{raised:?}");
    }
}

/// The clock of the proxy that wrote first is two seconds early, and its write gets the later order.
#[test]
fn m4_a_writer_that_settled_a_part_is_not_the_proxy_that_wrote_it() {
    let by_worker = (settled(2000, 2 * DAY_MS + 1, 7), settled(1000, 2 * DAY_MS, 7));
    // Directly above the order that it had.
    let by_second_proxy = (settled(2000, DAY_MS + 2001, 2), written(1000, 2));
    let by_first_proxy = (at(2000, DAY_MS + 3000, 1), settled(1000, DAY_MS + 2500, 1));
    for (first, second) in [by_worker, by_second_proxy, by_first_proxy] {
        assert!(!is_superseded(second, first) && !is_superseded(first, second), "{first:?}");
    }
    let later = settled(2001 + CLOCK_SKEW_MS_MAX, 3 * DAY_MS, 9);
    assert!(is_superseded(by_worker.0, later) && is_superseded(by_second_proxy.0, later));
}

#[test]
fn m4_what_replaced_a_replaced_write_replaces_the_others_too() {
    let times = [0, 1, CLOCK_SKEW_MS_MAX, CLOCK_SKEW_MS_MAX + 2, 2 * CLOCK_SKEW_MS_MAX + 4];
    let all = times.iter().flat_map(|ms| [1, 2, 3].map(|writer| (*ms, writer)));
    let all: Vec<_> = all
        .flat_map(|(ms, writer)| [written(ms, writer), at(ms, 2 * DAY_MS - ms, writer)])
        .collect();
    for a in &all {
        for b in all.iter().filter(|b| b.is_surely_after(*a)) {
            assert!(all.iter().all(|c| !c.is_surely_after(*b) || c.is_surely_after(*a)));
        }
    }
}

/// Numbers below a bound, which follow from a seed.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |end| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % end
    }
}

#[test]
fn m4_certainty_is_transitive() {
    let mut chains = 0;
    for seed in 0..200 {
        println!("seed {seed}");
        let mut below = numbers(seed);
        let mut write = || {
            let ms = below(4) * (CLOCK_SKEW_MS_MAX + 1) / 2 + below(3);
            let writer = below(3);
            match below(3) {
                0 => written(ms, writer),
                1 => at(ms, DAY_MS + below(4 * CLOCK_SKEW_MS_MAX), writer),
                _ => settled(ms, DAY_MS + below(4 * CLOCK_SKEW_MS_MAX), writer),
            }
        };
        for _ in 0..1000 {
            let [a, b, c] = [write(), write(), write()];
            if b.is_surely_after(a) && c.is_surely_after(b) {
                assert!(c.is_surely_after(a), "seed {seed}: {a:?} {b:?} {c:?}");
                chains += 1;
            }
        }
    }
    assert!(chains > 100, "{chains} chains");
}
