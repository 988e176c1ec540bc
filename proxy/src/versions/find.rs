//! Reads of one version of a key.

use std::collections::BTreeSet;

use martlet_protocol::backend::{Detail, ListStart, RegisterView, RowKinds, RowSelection, Want};
use martlet_protocol::entry::{Entry, Object, Value};
use martlet_protocol::limits::CLOCK_SKEW_MS_MAX;
use martlet_protocol::{Level, RegisterKey, Stamp, UploadId, VersionId, WriteId};

use super::beside::{run_of, version_of};
use super::store::VersionStore;
use crate::context::RequestContext;
use crate::error::{Error, Result};
use crate::walk::{Bound, SEEN_MAX, Walk};

/// Number of versions of a key that a page of a search is likely to need.
const SEARCHED_LIKELY: usize = 1000;

/// Number of versions that a search for a completed one is likely to pass.
const PASSED_LIKELY: usize = 32;
/// Difference of positions that clocks may cause.
const SKEW: u64 = Stamp::at_ms(CLOCK_SKEW_MS_MAX).time;

/// The version that the completion of an upload creates. Its id has the write id of the decision, and a position between two
/// orders.
#[derive(Clone, Copy)]
pub(crate) struct CompletedVersion {
    pub(crate) upload: UploadId,
    pub(crate) write_id: WriteId,
    /// A stamp before the version was written.
    pub(crate) since: Stamp,
    /// A stamp after it was written, if that is known.
    pub(crate) until: Option<Stamp>,
}

/// State of a version, as the registers beside a head show it.
pub(crate) enum Trace {
    /// The version.
    Version(Box<Entry>),
    /// The version was removed, or it may have been.
    MaybeGone,
    /// The version was never there, unless its tombstone was collected.
    Nothing,
}

/// Read of one version of a key, or of the current one.
#[derive(Clone, Copy)]
pub(crate) struct VersionRead<'a> {
    /// Register of the current version.
    pub(crate) head: &'a RegisterKey,
    pub(crate) version: Option<VersionId>,
    pub(crate) want: Want,
    pub(crate) level: Level,
}

impl VersionStore {
    /// The view of a version: the head that was read, or the register beside it. The head is read
    /// first, since versions move from there; a move back leaves a copy.
    pub(crate) async fn view_of(
        &self,
        context: &RequestContext,
        read: VersionRead<'_>,
        view: RegisterView,
    ) -> Result<RegisterView> {
        let VersionRead { head, version, want, level } = read;
        let held = version_of(view.entry.as_ref()).map(|(held, _)| held.name());
        match version {
            Some(version) if held != Some(version) => {
                let key = RegisterKey::version(head, version);
                Ok(Box::pin(self.registers.read(context, &key, want, level)).await?)
            }
            _ => Ok(view),
        }
    }

    /// State beside a head: that of the version that a completion creates.
    pub(crate) async fn trace(
        &self,
        context: &RequestContext,
        head: &RegisterKey,
        sought: CompletedVersion,
    ) -> Result<Trace> {
        if let Some(version) = self.numbered_by(context, head, sought).await? {
            let beside = self.beside(context, head, version).await?;
            return Ok(beside.map_or(Trace::MaybeGone, |(_, entry)| Trace::Version(entry.into())));
        }
        let key = RegisterKey::version(head, VersionId::Null);
        let read = self.registers.read(context, &key, Want::Entry, Level::Strict);
        let Some(null) = read.await?.entry else { return Ok(Trace::Nothing) };
        let is_of = |object: &Object| object.upload == Some(sought.upload);
        if matches!(&null.value, Value::Object(object) if is_of(object)) {
            return Ok(Trace::Version(null.into()));
        }
        // Null versions replace each other: one that came or was removed since then may have been in this one's place.
        let at = null.value.version().map_or(null.order.time, |version| version.position);
        Ok(if at > sought.since.time { Trace::MaybeGone } else { Trace::Nothing })
    }

    /// Finds the numbered version that a completion created, also if it was removed. The search reads summaries, the latest
    /// first, of the time in which the version may have been written.
    async fn numbered_by(
        &self,
        context: &RequestContext,
        head: &RegisterKey,
        CompletedVersion { write_id: wanted, since, until, .. }: CompletedVersion,
    ) -> Result<Option<VersionId>> {
        let oldest = since.time.saturating_sub(SKEW);
        let position = until.map_or(u64::MAX, |until| until.time.saturating_add(SKEW));
        let first = VersionId::Numbered { position, write_id: WriteId([0; 16]) };
        let start = ListStart::At(RegisterKey::version(head, first).name);
        let (run, level) = (run_of(head), Level::Strict);
        let mut walk = Walk::new(&self.registers, context, &run, start, PASSED_LIKELY, level)?;
        walk.selection = RowSelection { detail: Detail::Summary, kinds: RowKinds::All };
        while let Some((name, _)) = walk.next().await? {
            match RegisterKey::version_of(&name) {
                Some((_, VersionId::Numbered { position, .. })) if position < oldest => break,
                Some((_, found @ VersionId::Numbered { write_id, .. })) if write_id == wanted => {
                    return Ok(Some(found));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

impl VersionStore {
    /// Ids of the numbered versions beside a head, and of those that were removed.
    ///
    /// # Errors
    /// Too few replicas reply, or the key has more than [`SEEN_MAX`] versions, removed ones included.
    pub(crate) async fn ids_beside(
        &self,
        context: &RequestContext,
        head: &RegisterKey,
    ) -> Result<BTreeSet<WriteId>> {
        let start = ListStart::First;
        let mut walk = Walk::new(
            &self.registers,
            context,
            &run_of(head),
            start,
            SEARCHED_LIKELY,
            Level::Strict,
        )?;
        // A removed version is a tombstone beside the head.
        walk.selection = RowSelection { detail: Detail::Summary, kinds: RowKinds::All };
        walk.meter.pause_at(Bound::Rows(SEEN_MAX));
        let mut ids = BTreeSet::new();
        while let Some((name, _)) = walk.next().await? {
            if let Some((_, VersionId::Numbered { write_id, .. })) = RegisterKey::version_of(&name)
            {
                ids.insert(write_id);
            }
        }
        if walk.paused().is_some() {
            let message = "the key has too many versions to compare them with its extents";
            return Err(martlet_protocol::Error::unavailable(message).into());
        }
        Ok(ids)
    }
}

/// The error for an entry without an object; `requested` is the version that the client named.
pub(crate) fn no_object(entry: Option<&Entry>, requested: Option<VersionId>) -> Error {
    match entry.map(|entry| (&entry.value, entry.value.version())) {
        Some((Value::DeleteMarker(marker), Some(version))) => Error::DeleteMarker {
            version: version.name(),
            modified_ms: marker.modified_ms,
            was_named: requested.is_some(),
        },
        _ if requested.is_some() => Error::NoSuchVersion,
        _ => Error::NoSuchKey,
    }
}
