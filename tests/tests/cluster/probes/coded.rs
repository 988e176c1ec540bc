//! Probes of clusters with erasure-coded objects. One file per fault, which names it.
//!
//! Each probe ends with every fragment on its primary only, parity that matches its data, and
//! objects that read as they were written.

mod added_nodes;
mod flipped_bits;
mod killed_nodes;
mod power_cut;
mod soak;
mod wiped_device;

use std::collections::BTreeSet;

use martlet_tests::checkers::{Response, Value};
use martlet_tests::probe::{Probe, keys};
use martlet_tests::recorded::load::{CODED_LENGTHS, Load};
use martlet_tests::recorded::tally::PeriodCounts;

/// Lengths in bytes: one fragment with bytes, several, packed and in files, and more than one
/// extent under 2+1.
const LENGTHS: [usize; 8] =
    [9_000, 60_000, 66_000, 140_000, 270_000, 700_000, 3_000_000, 9_000_000];

/// Few clients, since these probes test correctness rather than pace. No conditional writes: they
/// need a quorum of the three primaries that hold a key.
const LOAD: Load = Load {
    clients: 4,
    keys: 12,
    pause: std::time::Duration::from_millis(20),
    conditional: false,
    lengths: &CODED_LENGTHS,
    apart: false,
};

/// Writes objects that must stay unchanged to the end.
async fn write(probe: &Probe, number: usize) -> Vec<(String, Value)> {
    let mut client = probe.client(0);
    let mut written = Vec::new();
    for (key, length) in keys("kept", number).into_iter().zip(LENGTHS.into_iter().cycle()) {
        client.length = length;
        let (value, outcome) = client.put(&key).await;
        assert_eq!(outcome, Response::Done, "{key}: {:?}", client.reply);
        written.push((key, value));
    }
    written
}

/// Reads all objects once through every proxy. Returns the number of reads without a reply.
async fn read(probe: &Probe, written: &[(String, Value)]) -> usize {
    let mut errors = 0;
    for proxy in 0..probe.cluster.proxies.len() {
        let mut client = probe.client(proxy);
        client.is_loyal = true;
        for (key, value) in written {
            match client.get(key).await {
                Response::Read(read) => assert_eq!(read, Some(*value), "{key}"),
                _ => errors += 1,
            }
        }
    }
    println!("{errors} of {} reads had no answer", probe.cluster.proxies.len() * written.len());
    errors
}

/// Asserts that at most `percent_max` percent of the calls failed, plus three, since shares of a
/// few calls mean little. A code needs more devices for a write than copies do, and proxies avoid a
/// node for some time after a timeout, which a busy machine causes.
fn assert_few_errors(tally: &PeriodCounts, percent_max: usize) {
    let errors_max = 3 + tally.operations * percent_max / 100;
    assert!(tally.errors <= errors_max, "{} errors, {errors_max} at most: {tally:?}", tally.errors);
    assert!(tally.written > 0, "nothing was written: {tally:?}");
}

/// Waits until a census is clean, then checks all fragments and objects.
async fn assert_whole(probe: &mut Probe, written: &[(String, Value)]) {
    let census = probe.settled().await;
    assert!(census.extents >= written.len() && census.pieces > 2 * census.extents, "{census}");
    assert_eq!(probe.cluster.disagreeing("kept/").await, BTreeSet::new());
    probe.assert_there(written).await;
}
