//! Writes that may use the reserve of a device without room.
//!
//! | | Full | Critical |
//! |---|---|---|
//! | promises, tombstones | yes | yes |
//! | entries without inline bytes | yes | no |
//! | inline bytes that the register, its head or the register beside it holds | yes | no |
//! | a head that becomes the version held beside it | yes | yes |
//! | other inline bytes | no | no |
//!
//! A version delete puts the version below into the head, with its inline bytes: at most 8 KiB. It
//! frees the extents of the deleted version, so a device without room must accept it. The reserve
//! bounds these writes as follows. Inline bytes that are held already take their place a second time
//! until a compaction, or until the register beside the head is removed. While a device is Full,
//! clients may rewrite an entry again and again, as they may one without inline bytes; the writes end
//! at Critical, with half of the reserve left. At Critical only a version that is held beside its
//! head goes into the head, once for each deleted version. Other devices' writes of entries that this
//! device lacks bring new bytes, so their mode is no reason to accept them.

use martlet_protocol::run_usage::{head_of, version_in};
use martlet_protocol::{Error, RegisterKey, Result};

use super::Group;
use crate::device::ballast::FillLevel;
use crate::index::queue::WriteOp;
use crate::index::rows::RegisterRow;
use crate::index::usage;

impl Group<'_> {
    /// Returns `Full` for writes that may not use the reserve. `old` is the register before the
    /// write.
    pub(super) fn check_room(&self, write: &WriteOp, old: &RegisterRow) -> Result<()> {
        let is_accepted = match self.conditions.level {
            FillLevel::Ready => true,
            FillLevel::Full => {
                write.inline.is_none()
                    || is_held(old, write)?
                    || self.is_held_in_counterpart(write)?
            }
            FillLevel::Critical => {
                write.tombstone
                    || usage::is_head(&write.key) && self.is_held_in_counterpart(write)?
            }
        };
        if is_accepted {
            return Ok(());
        }
        Err(Error::full("the device is full").without_effect("no space left for entries"))
    }

    /// Returns true if the head of a register beside it, or the register beside a head, holds the
    /// version of a write.
    fn is_held_in_counterpart(&self, write: &WriteOp) -> Result<bool> {
        let Some(version) = version_in(write.row.entry_bytes())? else { return Ok(false) };
        let key = RegisterKey::decode(&write.key)?;
        let counterpart = if usage::is_head(&write.key) {
            Some(RegisterKey::version(&key, version))
        } else {
            head_of(&key).map(|(head, _)| head)
        };
        let Some(counterpart) = counterpart else { return Ok(false) };
        let row = self.row(&counterpart.encode())?;
        Ok(version_in(row.entry_bytes())? == Some(version) && has_body_of(&row, write)?)
    }
}

/// Returns true if a register holds a write, or its version, with the same inline bytes.
fn is_held(row: &RegisterRow, write: &WriteOp) -> Result<bool> {
    let Some((_, held)) = row.register()?.held else { return Ok(false) };
    let version = version_in(write.row.entry_bytes())?;
    let is_same =
        held == write.write_id || version.is_some() && version_in(row.entry_bytes())? == version;
    Ok(is_same && has_body_of(row, write)?)
}

/// Returns true if a register has the body of a write: its extents, or its inline bytes.
fn has_body_of(row: &RegisterRow, write: &WriteOp) -> Result<bool> {
    if row.has_inline() != write.row.has_inline() {
        return Ok(false);
    }
    let (Some(held), Some(new)) = (row.entry()?, write.row.entry()?) else { return Ok(false) };
    Ok(held.value.body() == new.value.body())
}
