//! Background workers' calls on the extents of a device: presence, release of copies (rule X4), deletes
//! that must not come late (rule X8), and volumes that took no record for some time; sums of extents,
//! and the list of the quarantine.

use std::time::Duration;

use martlet_protocol::backend::{
    DeleteCondition, Presence, QuarantinePage, ReleaseCondition, RingEpoch,
};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::extent_sums::PolicySums;
use martlet_protocol::tree::Span;
use martlet_protocol::{ExtentId, PolicyId, Result};

use super::ExtentStore;
use super::quarantine;
use super::row::RowLocation;
use super::store::{Removal, StoreState};

impl ExtentStore {
    /// Deletes extents as [`Self::delete`], while the condition holds (rule X8).
    pub async fn delete_unneeded(
        &self,
        ids: &[ExtentId],
        condition: DeleteCondition,
    ) -> Result<()> {
        self.remove(ids, Removal::Marked(Some(condition))).await
    }

    /// Removes copies that other devices hold, durably. They may be written here again.
    pub async fn release(&self, ids: &[ExtentId]) -> Result<()> {
        self.remove(ids, Removal::Unmarked).await
    }

    /// Removes exactly these copies, durably, while the condition holds (rule X9). They may be written
    /// here again.
    pub async fn release_copies(
        &self,
        extents: Vec<ExtentRef>,
        condition: ReleaseCondition,
    ) -> Result<()> {
        self.remove_by(move |store| store.release(&extents, &condition)).await
    }

    /// Makes the rows of volumes durable that took no record for `idle`, so that an opening after a
    /// crash doesn't inspect their free space. Returns the number of these volumes. Blocks.
    pub fn close_idle_volumes(&self, idle: Duration) -> Result<usize> {
        self.0.open_volumes.close_idle(idle)
    }

    /// Returns up to `limit` items in quarantine with names above `after`, in the order of their names.
    pub async fn quarantine(&self, after: Option<&str>, limit: usize) -> Result<QuarantinePage> {
        let (store, after) = (self.0.clone(), after.map(str::to_owned));
        let list = move || quarantine::page(&*store.disk, &store.root, after.as_deref(), limit);
        self.0.threads.run(list).await
    }

    /// Returns the sums of extents in the bins that touch a span, of one policy or of all. Memory
    /// alone is read.
    ///
    /// # Errors
    /// `Conflict` while the extents are counted after a crash.
    pub fn sums(&self, policy: Option<PolicyId>, spans: &[Span]) -> Result<Vec<PolicySums>> {
        let sums = self.0.counters.sums.lock();
        self.0.counters.check_counted()?;
        Ok(sums.within(policy, spans))
    }

    /// Returns the presence of each extent; quarantined extents are missing.
    pub async fn presence(&self, ids: &[ExtentId]) -> Result<Vec<Presence>> {
        let (store, ids) = (self.0.clone(), ids.to_vec());
        let look = move || ids.iter().map(|id| store.presence(*id)).collect();
        self.0.threads.run(look).await
    }

    /// Returns presences by these rings or later ones (rule X9). `Unavailable` if the node has earlier
    /// ones.
    pub async fn presence_by(
        &self,
        ids: &[ExtentId],
        rings: &[RingEpoch],
    ) -> Result<Vec<Presence>> {
        let (store, ids, rings) = (self.0.clone(), ids.to_vec(), rings.to_vec());
        let look = move || {
            if let Some(own) = &store.rings {
                own.check_statement(&rings)?;
            }
            // A release that passed its check by an earlier ring ends first. Later ones are refused, so
            // the reads need no lock.
            drop(store.gate.read());
            ids.iter().map(|id| store.presence(*id)).collect()
        };
        self.0.threads.run(look).await
    }
}

impl StoreState {
    fn presence(&self, id: ExtentId) -> Result<Presence> {
        if self.table.get(id)?.is_some_and(|row| row.place != RowLocation::Quarantined) {
            return Ok(Presence::Here);
        }
        Ok(if self.table.is_marked(id)? { Presence::Deleted } else { Presence::Missing })
    }
}
