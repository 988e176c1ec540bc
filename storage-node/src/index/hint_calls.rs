//! Calls about hints: writes that the device keeps for others (rule A2).
//!
//! A device that may keep hints and has no usable votes gives none away (rule G1).

use martlet_protocol::backend::{
    ArrivedHints, EntryWrite, Hint, ListReply, ListRequest, RecentPage, RegisterView, RowSelection,
    Want, WriteReply,
};
use martlet_protocol::{RegisterKey, Result, Stamp};

use super::list::ListSource;
use super::prepare::prepare;
use super::queue::IndexOp;
use super::{Index, hints};

impl Index {
    /// Stores a hint: a write for the primaries of its register (rule A2).
    pub(crate) async fn keep_hint(&self, write: EntryWrite) -> Result<WriteReply> {
        let write = prepare(&write, &self.secret)?;
        let reply = self.submit(|reply| IndexOp::KeepHint(write, reply)).await?;
        if reply == WriteReply::Stored {
            self.reader.counters.hint_kept();
        }
        Ok(reply)
    }

    pub(crate) async fn read_hint(&self, key: &RegisterKey, want: Want) -> Result<RegisterView> {
        if !self.voting_state.has_hints(&self.name)? {
            return Ok(RegisterView::default());
        }
        hints::read(&self.reader, key, want).await
    }

    pub(crate) async fn list_hints(&self, request: &ListRequest) -> Result<ListReply> {
        if !self.voting_state.has_hints(&self.name)? {
            return Ok(ListReply::default());
        }
        self.list_of(ListSource::Hints, request, RowSelection::EVERYTHING).await
    }

    pub(crate) async fn hints(
        &self,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<Hint>> {
        if !self.voting_state.has_hints(&self.name)? {
            return Ok(Vec::new());
        }
        let (database, after) = (self.reader.database.clone(), after.cloned());
        self.run(move || hints::page(&database, after.as_ref(), limit)).await
    }

    pub(crate) async fn forget_hint(&self, key: &RegisterKey, order: Stamp) -> Result<()> {
        let key = key.encode();
        self.submit(|reply| IndexOp::ForgetHint(key, order, reply)).await
    }
}

/// Returns hints in the order of their arrival, of those whose keys are in memory.
pub(crate) async fn arrivals(
    index: &Index,
    after: Option<u64>,
    limit: usize,
) -> Result<ArrivedHints> {
    let state = &index.voting_state;
    state.has_hints(&index.name)?;
    let RecentPage { keys, last, missed } =
        state.kept_hints().arrivals().lock().after(after, limit);
    if keys.is_empty() {
        return Ok(ArrivedHints { hints: Vec::new(), last, missed });
    }
    let database = index.reader.database.clone();
    let hints = index.run(move || hints::of_keys(&database, &keys)).await?;
    Ok(ArrivedHints { hints, last, missed })
}
