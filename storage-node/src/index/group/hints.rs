//! Hints in a group: writes kept for other devices (rule A2).

use martlet_protocol::backend::WriteReply;
use martlet_protocol::register::Register;
use martlet_protocol::{BucketId, Error, Result, Stamp, WriteId};

use super::{Group, GroupInputs};
use crate::index::family::Family;
use crate::index::hints::HintRow;
use crate::index::queue::WriteOp;
use crate::index::rows;

impl Group<'_> {
    /// Judges a hint like a first-hand write, and stages it. A device without usable votes refuses: a disk
    /// that was put back begins anew without its hints, and has fences of an earlier time (rules A1, M2).
    pub(super) fn keep_hint(&mut self, write: WriteOp) -> Result<WriteReply> {
        let GroupInputs { voting_state, name, .. } = self.conditions;
        let votes = voting_state.check_votes(name);
        votes.map_err(|refusal| refusal.without_effect("a hint needs a device with votes"))?;
        if write.bucket != BucketId::ROOT {
            voting_state.check_fenced()?;
        }
        let kept = self.hint_of(&write.key)?;
        let before = Register { promise: Stamp::ZERO, held: kept };
        if let Some(refusal) = self.refusal(&write, &before) {
            return Ok(refusal);
        }
        match kept {
            Some((order, _)) if order > write.order => return Ok(WriteReply::Superseded),
            Some((order, _)) if order == write.order => return Ok(WriteReply::Stored),
            _ => {}
        }
        if write.row.has_inline() && write.inline.is_none() {
            return Err(Error::invalid("an inline entry came without its bytes"));
        }
        self.check_room(&write, &rows::RegisterRow::empty())?;
        let inline = match &write.inline {
            Some(row) => rows::split_inline(row)?.1,
            None => &[],
        };
        let row = HintRow {
            keep_body: write.keep_body,
            since_ms: self.conditions.now_ms,
            entry: write.row.entry_bytes(),
            inline,
        };
        let family = self.conditions.database.family(Family::Hints);
        self.batch.put_cf(family, &write.key, row.encode());
        self.hints_more += i64::from(kept.is_none());
        self.hints.insert(write.key, Some((write.order, write.write_id)));
        Ok(WriteReply::Stored)
    }

    /// Stages the removal of a hint, unless its order is higher.
    pub(super) fn forget_hint(&mut self, key: Vec<u8>, order: Stamp) -> Result<()> {
        if self.hint_of(&key)?.is_some_and(|(kept, _)| kept <= order) {
            self.batch.delete_cf(self.conditions.database.family(Family::Hints), &key);
            self.hints_more -= 1;
            self.hints.insert(key, None);
        }
        Ok(())
    }

    fn hint_of(&self, key: &[u8]) -> Result<Option<(Stamp, WriteId)>> {
        if let Some(kept) = self.hints.get(key) {
            return Ok(*kept);
        }
        let row = self.conditions.database.get_pinned(Family::Hints, key)?;
        row.map(|row| HintRow::parse(&row)?.held()).transpose()
    }
}
