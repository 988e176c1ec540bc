//! Usage of runs and lists of old registers in a group.
//!
//! Invariant: the rows change in the batch that changes their register.

use martlet_protocol::run_usage::{Run, RunUsage, head_of, version_in};
use martlet_protocol::{BucketId, Error, RegisterKey, Result, Shard, VersionId};

use super::Group;
use crate::index::counting;
use crate::index::family::Family;
use crate::index::old_list;
use crate::index::rows::RegisterRow;
use crate::index::usage::{self, UsageKey, UsageMends};

/// Changes of usage and of a list that come with a change of a register.
pub(super) struct KeptRows {
    at: UsageKey,
    usage: RunUsage,
    listed: ListChange,
}

/// Row of a register in the lists of old registers, before a change and after it.
struct ListChange {
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
}

impl ListChange {
    fn of(key: &[u8], old: &RegisterRow, new: &RegisterRow) -> Result<Self> {
        Ok(Self { before: old_list::row_of(key, old)?, after: old_list::row_of(key, new)? })
    }
}

impl Group<'_> {
    /// Returns the changes that come with a change of a register. Reads the registers that they
    /// depend on, and stages nothing: after an error the group has no part of the change.
    pub(super) fn kept_rows(
        &mut self,
        at: UsageKey,
        key: &[u8],
        old: &RegisterRow,
        new: &RegisterRow,
    ) -> Result<KeptRows> {
        let listed = ListChange::of(key, old, new)?;
        let mut usage = usage::contribution(key, new.entry_bytes())?;
        usage -= usage::contribution(key, old.entry_bytes())?;
        if usage::is_beside(key) {
            self.note_beside(key);
            if self.is_of_head(key)? {
                usage = RunUsage::default();
            }
        } else if usage::is_head(key) && !self.is_plain(key) {
            usage += self.of_copies(key, old, new)?;
        }
        Ok(KeptRows { at, usage, listed })
    }

    /// Stages changes of usage and of a list.
    pub(super) fn stage_kept(&mut self, rows: KeptRows) {
        let KeptRows { at, usage, listed } = rows;
        self.stage_listed(listed);
        self.usage.add(at, usage);
    }

    /// Returns the change of what the registers beside a head contribute, if the head's version
    /// changes: the copy of the old version counts from now on, and that of the new one doesn't.
    fn of_copies(&self, key: &[u8], old: &RegisterRow, new: &RegisterRow) -> Result<RunUsage> {
        let mut change = RunUsage::default();
        let [before, after] = [version_in(old.entry_bytes())?, version_in(new.entry_bytes())?];
        if before == after {
            return Ok(change);
        }
        let head = RegisterKey::decode(key)?;
        if let Some(version) = before {
            change += self.contribution_beside(&head, version)?;
        }
        if let Some(version) = after {
            change -= self.contribution_beside(&head, version)?;
        }
        Ok(change)
    }

    fn contribution_beside(&self, head: &RegisterKey, version: VersionId) -> Result<RunUsage> {
        let key = RegisterKey::version(head, version).encode();
        usage::contribution(&key, self.row(&key)?.entry_bytes())
    }

    /// Returns true if a register beside a head has the head's version.
    fn is_of_head(&self, key: &[u8]) -> Result<bool> {
        let Some((head, version)) = head_of(&RegisterKey::decode(key)?) else { return Ok(false) };
        Ok(version_in(self.row(&head.encode())?.entry_bytes())? == Some(version))
    }

    fn is_plain(&self, key: &[u8]) -> bool {
        self.conditions.counting.plain.has(key)
            && !key.first_chunk().is_some_and(|run| self.with_besides.contains(run))
    }

    fn note_beside(&mut self, key: &[u8]) {
        self.conditions.counting.plain.note_beside(key);
        self.with_besides.extend(key.first_chunk());
    }

    fn stage_listed(&mut self, listed: ListChange) {
        let ListChange { before, after } = listed;
        if before == after {
            return;
        }
        let family = self.conditions.database.family(Family::Old);
        if let Some(row) = before {
            self.batch.delete_cf(family, row);
        }
        if let Some(row) = after {
            self.batch.put_cf(family, row, []);
        }
    }

    /// Stages the list row of a register that got a promise.
    pub(super) fn list_promise(
        &mut self,
        key: &[u8],
        old: &RegisterRow,
        new: &RegisterRow,
    ) -> Result<()> {
        if new.entry_bytes().is_empty() {
            self.stage_listed(ListChange::of(key, old, new)?);
        }
        Ok(())
    }

    /// Compares rows of the lists with their registers: rows that are missing are put, and those
    /// without a register are removed.
    pub(super) fn list_old(&mut self, listed: Vec<Vec<u8>>) -> Result<()> {
        let family = self.conditions.database.family(Family::Old);
        for row in listed {
            let key = old_list::register_in(&row)?;
            if old_list::row_of(key, &self.row(key)?)?.as_deref() == Some(&row[..]) {
                self.batch.put_cf(family, row, []);
            } else {
                self.batch.delete_cf(family, row);
            }
        }
        Ok(())
    }

    /// Stages corrections of usage. `Conflict` if their snapshot is older than another correction.
    pub(super) fn mend_usage(&mut self, mends: UsageMends) -> Result<()> {
        let UsageMends { after, mends, position } = mends;
        let counting = self.conditions.counting;
        if counting.corrections() != after {
            return Err(Error::conflict("the usage of runs was corrected meanwhile"));
        }
        if !mends.is_empty() {
            self.begin_correction();
        }
        for (at, change) in mends {
            self.usage.add(at, change);
        }
        if let Some(position) = position {
            counting::stage_position(self.conditions.database, &mut self.batch, &position);
            self.counted = Some(position);
        }
        Ok(())
    }

    /// Stages the removal of a bucket's usage, of these shards.
    pub(super) fn purge_usage(&mut self, bucket: BucketId, shards: &[Shard]) {
        self.usage.forget(bucket);
        self.begin_correction();
        let family = self.conditions.database.family(Family::Usage);
        for shard in shards {
            let run = Run { bucket, shard: *shard };
            self.batch.delete_cf(family, usage::usage_key(run));
        }
    }

    fn begin_correction(&mut self) {
        self.conditions.counting.corrected();
        self.corrects = true;
    }

    /// Publishes what the batch, which is on disk, has changed.
    pub(super) fn publish_rows(&self) {
        let counting = self.conditions.counting;
        for run in &self.with_besides {
            counting.plain.note_beside(run);
        }
        if self.corrects {
            counting.corrected();
        }
        if let Some(position) = &self.counted {
            counting.reached(position);
        }
    }
}
