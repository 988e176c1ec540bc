//! Rewrapping of data keys by the first master key, one page of a bucket at a time.
//!
//! Nothing is stored between pages, so a caller may start over at any time: data keys that the
//! first master key wraps are skipped. Bytes and data keys don't change. Only the document in the
//! entry does, by a ballot like any change of metadata. A concurrent write is not undone; the first
//! master key wraps its data key anyway.

use futures::{StreamExt, stream};
use martlet_protocol::entry::{Entry, Mark, Marks, Object};
use martlet_protocol::{BucketId, VersionId};

use crate::api::{ListUploads, ListVersions, ListedVersion, ObjectName};
use crate::consistency::ConsistencyOptions;
use crate::context::RequestContext;
use crate::encryption::keys::Wrapper;
use crate::encryption::{Locked, ObjectAddress};
use crate::error::{Error, Result};
use crate::keyring::Vault;
use crate::store::{ObjectStore, Services};

/// Concurrent changes of objects.
const OBJECTS_AT_ONCE: usize = 4;
/// Uploads on one page.
const UPLOADS: usize = 1000;

/// Result of one page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrapped {
    /// Number of versions read.
    pub seen: u64,
    /// Number of versions whose data key was rewrapped.
    pub changed: u64,
    /// Number of versions that failed.
    pub failed: u64,
    /// Key and error of the last failure.
    pub failure: Option<String>,
    /// Start of the next page, if more follows.
    pub next: Option<(String, Option<VersionId>)>,
}

impl Rewrapped {
    fn note(&mut self, key: &str, outcome: Result<bool>) {
        match outcome {
            Ok(is_changed) => self.changed += u64::from(is_changed),
            Err(error) => {
                self.failed += 1;
                self.failure = Some(format!("{key}: {error}"));
            }
        }
    }
}

/// Returns true if a master key other than the first wraps the data key.
fn is_outdated(vault: &Vault, locked: Option<&Locked>) -> bool {
    let first = vault.first_root().map(|(name, _)| name);
    match locked.map(Locked::by) {
        Some(Wrapper::Master(name)) => Some(name.as_str()) != first,
        Some(Wrapper::Customer) | None => false,
    }
}

/// The document wrapped by the first master key; none if no rewrap is needed.
fn rewrapped(vault: &Vault, marks: &Marks, object: ObjectAddress<'_>) -> Result<Option<Vec<u8>>> {
    let Some(locked) = Locked::of(marks, object)?.filter(|it| is_outdated(vault, Some(it))) else {
        return Ok(None);
    };
    let Wrapper::Master(name) = locked.by() else { return Ok(None) };
    let secret = vault.unwrap(name, &locked)?;
    let (by, root) = vault.wrapping().ok_or(Error::NoMasterKey)?;
    Ok(Some(secret.lock(by, root, object)))
}

/// Data keys of the objects and uploads of a store.
#[derive(Clone, Copy, Debug)]
pub struct DataKeys<'a> {
    store: &'a ObjectStore,
}

impl ObjectStore {
    /// Data keys of encrypted objects and uploads.
    pub fn data_keys(&self) -> DataKeys<'_> {
        DataKeys { store: self }
    }
}

impl DataKeys<'_> {
    /// Rewraps the data keys of a page of a bucket's versions.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::NoMasterKey`]; a failed listing.
    pub async fn rewrap(
        self,
        bucket: &str,
        after: Option<(String, Option<VersionId>)>,
        limit: usize,
    ) -> Result<Rewrapped> {
        let session = self.store.session(ConsistencyOptions::STRICT);
        let (services, context) = (&*self.store.services, &*session.context());
        let vault = &*services.vault;
        vault.wrapping().ok_or(Error::NoMasterKey)?;
        let (after_key, after_version) = after.map_or((None, None), |(key, id)| (Some(key), id));
        let list = ListVersions { after_key, after_version, limit, ..Default::default() };
        let page = session.versions().list(bucket, list).await?;
        let home = session.bucket(bucket).await?.id;
        let seen = page.versions.len() as u64;
        let mut rewrapped = Rewrapped { seen, next: page.next, ..Rewrapped::default() };
        let mut outdated = Vec::new();
        for ListedVersion { key, id, object, .. } in page.versions {
            let Some(object) = object else { continue };
            let address = ObjectAddress { bucket: home, key: &key };
            match Locked::of(&object.attributes.marks, address) {
                Ok(it) if is_outdated(vault, it.as_ref()) => outdated.push((key, id)),
                Ok(_) => {}
                Err(error) => rewrapped.note(&key, Err(error.into())),
            }
        }
        let mut outcomes = stream::iter(outdated)
            .map(|(key, id)| async move {
                let name = ObjectName { key: &key, version: Some(id) };
                let outcome = rewrap_one(services, context, bucket, home, name).await;
                (key, outcome)
            })
            .buffer_unordered(OBJECTS_AT_ONCE);
        while let Some((key, outcome)) = outcomes.next().await {
            rewrapped.note(&key, outcome);
        }
        drop(outcomes);
        Ok(rewrapped)
    }

    /// Number of a bucket's open uploads whose data key a master key other than the first wraps.
    /// Objects completed from them have that key too.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; a failed listing.
    pub async fn outdated_uploads(self, bucket: &str) -> Result<u64> {
        let session = self.store.session(ConsistencyOptions::STRICT);
        let home = session.bucket(bucket).await?.id;
        let (mut count, mut after) = (0, Some((None, None)));
        while let Some((after_key, after_id)) = after {
            let list = ListUploads { after_key, after_id, limit: UPLOADS, ..Default::default() };
            let page = session.uploads().list(bucket, list).await?;
            for upload in page.uploads {
                let address = ObjectAddress { bucket: home, key: &upload.key };
                let locked = Locked::of(&upload.marks, address)?;
                count += u64::from(is_outdated(&self.store.services.vault, locked.as_ref()));
            }
            after = page.next.map(|(key, id)| (Some(key), id));
        }
        Ok(count)
    }
}

/// Rewraps one version; returns true if it was changed. A deleted or overwritten version needs
/// no rewrap.
async fn rewrap_one(
    services: &Services,
    context: &RequestContext,
    bucket: &str,
    home: BucketId,
    name: ObjectName<'_>,
) -> Result<bool> {
    let address = ObjectAddress { bucket: home, key: name.key };
    let mut is_done = false;
    let mut change = |_: &Entry, object: &Object| {
        let Some(document) = rewrapped(&services.vault, &object.attributes.marks, address)? else {
            is_done = true;
            return Ok(None);
        };
        let mut object = object.clone();
        object.attributes.marks.set(Mark::Encryption, document);
        Ok(Some(object))
    };
    match services.reviser.revise_by_operator(context, bucket, name, &mut change).await {
        Ok(_) => Ok(true),
        Err(_) if is_done => Ok(false),
        Err(Error::NoSuchKey | Error::NoSuchVersion | Error::DeleteMarker { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
