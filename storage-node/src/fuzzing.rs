//! Fuzz target of what a device keeps: ends of logs, rows of the index, descriptions of extents.

use martlet_protocol::testing::fuzz_target::{FuzzTarget, InputReader, block};

use crate::extents::fuzzing as extents;
use crate::index::fuzzing as index;

/// Logs, rows and headers. An input is the number of a kind, then the bytes of that kind.
///
/// Properties: no bytes cause a panic; a log with any tail gives its whole records back or is
/// refused; a power cut within a record brings nothing of the record back; a flipped bit of a synced
/// log is damage; a row that is read can be written and read again.
pub const LOG_TAIL: FuzzTarget =
    FuzzTarget { name: "log_tail", check, seeds, heap_bytes_max: 16 << 20 };

fn check(input: &[u8]) -> bool {
    let mut reader = InputReader::new(input);
    match reader.byte() % 6 {
        0 => index::log::any_bytes(reader.rest()),
        1 => index::log::any_tail(reader),
        2 => index::log::power_cut(reader),
        3 => index::log::flipped_bit(reader),
        4 => index::check(reader),
        _ => extents::check(reader),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let with = |number: u8, seeds: Vec<Vec<u8>>| {
        seeds.into_iter().map(move |seed| [vec![number], seed].concat())
    };
    // Records of 300 bytes, of two blocks, and of one sector.
    let records = [&[3][..], &[44, 1, 7], &[0, 200, 7], &[0, 2, 5]].concat();
    let torn = [&[2, 1, 0, 0][..], &records, &block(b"planted"), &[0, 40], &[1, 3]].concat();
    let cut = [&[2, 1, 99, 0][..], &records, &block(b""), &[0, 40]].concat();
    let logs = vec![
        [&[1, 1][..], &records].concat(),
        torn,
        cut,
        [&[3, 100, 0, 2, 0][..], &records].concat(),
        vec![0],
    ];
    logs.into_iter().chain(with(4, index::seeds())).chain(with(5, extents::seeds())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_inputs_of_logs_and_rows() {
        let replayed = LOG_TAIL.replay();
        assert!(replayed.accepted >= replayed.seeds / 2, "{replayed:?}");
    }
}
