//! One version of a key, read.

use std::sync::Arc;

use martlet_protocol::backend::{ListStart, RegisterView, Want};
use martlet_protocol::entry::{Bucket, Entry, Value};
use martlet_protocol::{Level, RegisterKey, UploadId, VersionId};

use super::beside::{run_of, version_of};
use crate::error::{Error, Result};
use crate::store::Inner;
use crate::walk::Walk;

/// How many versions of a key are looked through for the one that an upload became.
const SEARCHED_MAX: usize = 1000;

impl Inner {
    /// A bucket of which a version is named. Where it keeps none, what is remembered of it may be from
    /// before it did.
    pub(crate) async fn bucket_with_versions(&self, name: &str) -> Result<Arc<Bucket>> {
        let known = self.bucket(name).await?;
        if known.versioning().state.keeps_versions() {
            return Ok(known);
        }
        self.buckets.forget(name);
        self.bucket(name).await
    }

    /// What holds a version of the key whose head was read: the head itself, or what is beside it.
    /// In this order, since a version moves that way; where it moves back, a copy stays.
    pub(crate) async fn view_of(
        &self,
        head: &RegisterKey,
        view: RegisterView,
        version: Option<VersionId>,
        (want, level): (Want, Level),
    ) -> Result<RegisterView> {
        let held = version_of(view.entry.as_ref()).map(|(held, _)| held.name());
        match version {
            Some(version) if held != Some(version) => {
                Ok(self.read(&RegisterKey::version(head, version), want, level).await?)
            }
            _ => Ok(view),
        }
    }

    /// The version that an upload became, if it is among the latest ones beside a head.
    pub(crate) async fn version_of_upload(
        &self,
        head: &RegisterKey,
        upload: UploadId,
    ) -> Result<Option<Entry>> {
        let mut walk = Walk::new(self, &run_of(head), ListStart::First, 1, Level::Strict)?;
        for _ in 0..SEARCHED_MAX {
            let Some((_, entry)) = walk.next().await? else { break };
            if matches!(&entry.value, Value::Object(object) if object.upload == Some(upload)) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

/// Why an entry is no object to a client who asked for a version, or for none.
pub(crate) fn no_object(entry: Option<&Entry>, asked: Option<VersionId>) -> Error {
    match entry.map(|entry| (&entry.value, entry.value.version())) {
        Some((Value::DeleteMarker(marker), Some(version))) => Error::DeleteMarker {
            version: version.name(),
            modified_ms: marker.modified_ms,
            was_asked_for: asked.is_some(),
        },
        _ if asked.is_some() => Error::NoSuchVersion,
        _ => Error::NoSuchKey,
    }
}
