//! Reads of one version of a key.

use std::collections::BTreeSet;

use martlet_protocol::backend::{Detail, ListStart, RegisterView, RowKinds, RowSelection, Want};
use martlet_protocol::entry::{Entry, Object, Value};
use martlet_protocol::{Level, RegisterKey, UploadId, VersionId, WriteId};

use super::beside::{run_of, version_of};
use super::store::VersionStore;
use crate::context::RequestContext;
use crate::error::{Error, Result};
use crate::walk::{Bound, SEEN_MAX, Walk};

/// Number of versions of a key that a page of a search is likely to need.
const SEARCHED_LIKELY: usize = 1000;

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

    /// The version created by an upload, if it is beside a head. The search reads the versions of
    /// this key page by page, the latest first, and ends at the first match. Its memory is that of a
    /// page. None is an answer about all versions: a caller may give the upload up because of it.
    pub(crate) async fn version_of_upload(
        &self,
        context: &RequestContext,
        head: &RegisterKey,
        upload: UploadId,
    ) -> Result<Option<Entry>> {
        let mut walk =
            Walk::new(&self.registers, context, &run_of(head), ListStart::First, 1, Level::Strict)?;
        walk.meter.pause_at(Bound::Rows(SEEN_MAX));
        loop {
            match walk.next().await? {
                Some((_, entry)) => {
                    let is_of = |object: &Object| object.upload == Some(upload);
                    if matches!(&entry.value, Value::Object(object) if is_of(object)) {
                        return Ok(Some(entry));
                    }
                }
                None if walk.paused().is_some() => walk.meter.go_on(),
                None => return Ok(None),
            }
        }
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
