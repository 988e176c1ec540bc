//! Usage of the runs of a device: its rows, and their updates.
//!
//! ```text
//! usage     placement (8, big-endian) | bucket (16) | shard (2, big-endian)
//!                         → postcard of a `RunUsage`
//! ```
//!
//! An update never reads a row: a batch contains one merge operand for each changed run, as for
//! [sums](super::tree). A run without a row, and a run whose row is zero, are empty.
//!
//! A version beside a head doesn't count if it is the head's. So a change of either reads the
//! other. Runs without registers beside heads are known in memory ([`plain_runs`](super::plain_runs)),
//! and their changes read nothing.

use martlet_protocol::backend::EntryWrite;
use martlet_protocol::key::{PREFIX_BYTES, index_placement};
use martlet_protocol::run_usage::{Run, RunUsage, head_of};
use martlet_protocol::{BucketId, RegisterKey, RegisterKind, Result};
use rocksdb::{ColumnFamily, MergeOperands, WriteBatch};

use super::tree::RowKey;

/// Bytes of a row's key.
const KEY_BYTES: usize = 8 + 16 + 2;
/// Bytes of an encoded key that name its run.
pub(super) const RUN_BYTES: usize = 16 + 2;

/// Key of a run's row.
pub(super) type UsageKey = [u8; KEY_BYTES];

/// Upper bound of all rows.
pub(super) const LAST_USAGE: [u8; KEY_BYTES + 1] = [0xff; KEY_BYTES + 1];

/// Returns the key of a run's row.
pub(super) fn usage_key(run: Run) -> UsageKey {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&index_placement(run.bucket, run.shard).to_be_bytes());
    key[8..24].copy_from_slice(&run.bucket.0);
    key[24..].copy_from_slice(&run.shard.0.to_be_bytes());
    key
}

/// Returns the key of the run that a bin belongs to. Keys of bins begin with it.
pub(super) fn usage_key_of(bin: &RowKey) -> UsageKey {
    *bin.first_chunk().expect("the key of a bin begins with that of its run")
}

/// Merge operator for RocksDB: adds operands to a row.
pub(super) fn add_up(_: &[u8], held: Option<&[u8]>, more: &MergeOperands) -> Option<Vec<u8>> {
    let mut usage = match held {
        Some(held) => RunUsage::decode(held).ok()?,
        None => RunUsage::default(),
    };
    for operand in more {
        usage += RunUsage::decode(operand).ok()?;
    }
    Some(usage.encode())
}

/// Returns true if a row equals a missing row.
pub(super) fn is_nothing(row: &[u8]) -> bool {
    row.iter().all(|byte| *byte == 0)
}

/// Returns the usage in a row.
pub(super) fn usage_in(row: Option<&[u8]>) -> Result<RunUsage> {
    row.map_or(Ok(RunUsage::default()), RunUsage::decode)
}

/// Returns what a register contributes, were it not beside its own version. `key` is encoded.
pub(super) fn contribution(key: &[u8], entry: &[u8]) -> Result<RunUsage> {
    if entry.is_empty() {
        return Ok(RunUsage::default());
    }
    let name_bytes = key.len().saturating_sub(PREFIX_BYTES);
    RunUsage::of(RegisterKey::kind_of(key)?, name_bytes, entry)
}

/// Returns true if the encoded key is that of a register beside a head.
pub(super) fn is_beside(key: &[u8]) -> bool {
    key.get(PREFIX_BYTES - 1) == Some(&(RegisterKind::Version as u8))
}

/// Returns true if the encoded key is that of an object's register.
pub(super) fn is_head(key: &[u8]) -> bool {
    key.get(PREFIX_BYTES - 1) == Some(&(RegisterKind::Object as u8))
}

/// Returns the encoded key of the register whose contribution depends on a write: the head of a
/// register beside it, or the copy of a head's new version.
pub(super) fn beside_of(write: &EntryWrite) -> Option<Vec<u8>> {
    if let Some((head, _)) = head_of(&write.key) {
        return Some(head.encode());
    }
    let version = write.entry.value.version()?;
    let is_object = write.key.kind == RegisterKind::Object;
    is_object.then(|| RegisterKey::version(&write.key, version.name()).encode())
}

/// Changes of usage by a group.
#[derive(Default)]
pub(super) struct UsageDeltas(Vec<(UsageKey, RunUsage)>);

impl UsageDeltas {
    pub(super) fn add(&mut self, at: UsageKey, usage: RunUsage) {
        if usage != RunUsage::default() {
            self.0.push((at, usage));
        }
    }

    /// Drops the changes in a bucket that is being purged.
    pub(super) fn forget(&mut self, bucket: BucketId) {
        self.0.retain(|(at, _)| at[8..24] != bucket.0);
    }

    /// Stages one operand for each changed run.
    pub(super) fn stage(mut self, family: &ColumnFamily, batch: &mut WriteBatch) {
        self.0.sort_unstable_by_key(|(at, _)| *at);
        for of_run in self.0.chunk_by(|a, b| a.0 == b.0) {
            let mut usage = RunUsage::default();
            for (_, more) in of_run {
                usage += *more;
            }
            if usage != RunUsage::default() {
                batch.merge_cf(family, of_run[0].0, usage.encode());
            }
        }
    }
}

/// Corrections of usage rows, by runs that were read from one snapshot.
#[derive(Debug, Default)]
pub(super) struct UsageMends {
    /// Number of corrections before the snapshot.
    pub(super) after: u64,
    pub(super) mends: Vec<(UsageKey, RunUsage)>,
    /// Row of the position of the count to store with them, if any.
    pub(super) position: Option<Vec<u8>>,
}

#[cfg(test)]
mod tests {
    use martlet_protocol::tree::BinKey;

    use super::super::tree;
    use super::*;

    fn key() -> RegisterKey {
        RegisterKey::object(BucketId([7; 16]), 16, "a/b")
    }

    #[test]
    fn the_key_of_a_bin_begins_with_that_of_its_run() {
        let (run, bin) = (Run { bucket: key().bucket, shard: key().shard }, BinKey::of(&key()));
        assert_eq!(usage_key(run), usage_key_of(&tree::row_key(&bin)));
        assert!(usage_key(run)[..] < LAST_USAGE[..]);
    }

    #[test]
    fn an_empty_run_is_nothing_and_all_others_are_something() {
        assert!(is_nothing(&RunUsage::default().encode()));
        assert!(!is_nothing(&RunUsage { index: -1, ..RunUsage::default() }.encode()));
        assert_eq!(usage_in(None).unwrap(), RunUsage::default());
        assert!(usage_in(Some(&[1])).is_err());
    }
}
