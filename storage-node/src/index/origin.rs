//! The formatting of a device that an index belongs to (rule G1).
//!
//! Peers confirm the votes of a device by its `format.json`. An index of another device, or one that was
//! set aside, remembers other promises and other entries, so it must not vote under that name.
//!
//! ```text
//! meta      'd'  → formatting (16); no row: an index of an earlier release, which gets the row
//! ```

use martlet_protocol::opening::Uuid;
use martlet_protocol::{Error, Result};
use rocksdb::WriteBatch;

use super::database::Database;
use super::family::Family;

/// Key of the formatting in `meta`.
const DEVICE_KEY: &[u8] = b"d";

/// Checks that an index belongs to a formatting of its device. An index without a formatting gets it, and
/// true is returned: the caller makes the row durable. Blocks.
///
/// # Errors
/// `Corrupt` if the index belongs to another formatting.
pub(super) fn check(database: &Database, device: Uuid) -> Result<bool> {
    match database.get(Family::Meta, DEVICE_KEY)?.map(<[u8; 16]>::try_from) {
        Some(Ok(held)) if held == device.0 => Ok(false),
        Some(Ok(held)) => Err(Error::corrupt(format!(
            "the index belongs to another device or to an earlier formatting ({}, not {device})",
            Uuid(held)
        ))),
        Some(Err(_)) => Err(Error::corrupt("the name of the index's device is malformed")),
        None => {
            let mut batch = WriteBatch::default();
            batch.put_cf(database.family(Family::Meta), DEVICE_KEY, device.0);
            // Without the log: RocksDB would allocate log space on a device that holds only extents.
            database.write_unlogged(batch).map(|()| true)
        }
    }
}
