//! Data keys that another master key wraps are wrapped by the first one, a page of a bucket at a time.
//!
//! Nothing is remembered between two pages, so whoever asks may begin anew at any time: what the first
//! key wraps already is passed over. Bytes and data keys stay as they are. Of an entry the document
//! changes, by a ballot like any other change of what is said of an object: a write that comes meanwhile
//! is not undone, and it is wrapped by the first key itself.

use futures::{StreamExt, stream};
use martlet_protocol::entry::{Entry, Mark, Marks, Object};
use martlet_protocol::{BucketId, Level, VersionId};

use super::keys::{Locked, Wrapper};
use crate::accounts::Vault;
use crate::api::{ListUploads, ListVersions, ListedVersion, ObjectName};
use crate::error::{Error, Result};
use crate::session::Ask;
use crate::store::{Inner, ObjectStore};

/// Objects that are changed at a time.
const OBJECTS_AT_ONCE: usize = 4;
/// Uploads that are listed at a time.
const UPLOADS: usize = 1000;
/// Nobody is answered from an older state than this.
const STRICT: Ask = Ask { level: Some(Level::Strict), read_after: None };

/// What became of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrapped {
    /// Versions looked at.
    pub seen: u64,
    /// Those of which the key was wrapped anew.
    pub changed: u64,
    /// Those that could not be.
    pub failed: u64,
    /// Why that was so for the last of them.
    pub failure: Option<String>,
    /// Where to go on, if there is more.
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

/// Whether it is a master key other than the first that wraps.
fn is_outdated(vault: &Vault, locked: Option<&Locked>) -> bool {
    let first = vault.first_root().map(|(name, _)| name);
    match locked.map(Locked::by) {
        Some(Wrapper::Master(name)) => Some(name.as_str()) != first,
        Some(Wrapper::Customer) | None => false,
    }
}

/// The document by the first master key, where another one's is there.
fn rewrapped(vault: &Vault, marks: &Marks, place: (BucketId, &str)) -> Result<Option<Vec<u8>>> {
    let Some(locked) = Locked::of(marks, place)?.filter(|it| is_outdated(vault, Some(it))) else {
        return Ok(None);
    };
    let Wrapper::Master(name) = locked.by() else { return Ok(None) };
    let secret = vault.unwrap(name, &locked)?;
    let (by, root) = vault.wrapping().ok_or(Error::NoMasterKey)?;
    Ok(Some(secret.lock(by, root, place)))
}

impl ObjectStore {
    /// Wraps the data keys of a page of a bucket's versions by the first master key.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::NoMasterKey`]; names that can't be listed.
    pub async fn rewrap(
        &self,
        bucket: &str,
        after: Option<(String, Option<VersionId>)>,
        limit: usize,
    ) -> Result<Rewrapped> {
        let session = self.session(STRICT);
        let inner = session.inner();
        inner.vault.wrapping().ok_or(Error::NoMasterKey)?;
        let (after_key, after_version) = after.map_or((None, None), |(key, id)| (Some(key), id));
        let list = ListVersions { after_key, after_version, limit, ..Default::default() };
        let page = session.list_versions(bucket, list).await?;
        let home = inner.bucket(bucket).await?.id;
        let seen = page.versions.len() as u64;
        let mut rewrapped = Rewrapped { seen, next: page.next, ..Rewrapped::default() };
        let mut outdated = Vec::new();
        for ListedVersion { key, id, object, .. } in page.versions {
            let Some(object) = object else { continue };
            match Locked::of(&object.attributes.marks, (home, &key)) {
                Ok(it) if is_outdated(&inner.vault, it.as_ref()) => outdated.push((key, id)),
                Ok(_) => {}
                Err(error) => rewrapped.note(&key, Err(error.into())),
            }
        }
        let mut outcomes = stream::iter(outdated)
            .map(|(key, id)| {
                let inner = inner.clone();
                async move {
                    let name = ObjectName { key: &key, version: Some(id) };
                    let outcome = inner.rewrap_one((bucket, home), name).await;
                    (key, outcome)
                }
            })
            .buffer_unordered(OBJECTS_AT_ONCE);
        while let Some((key, outcome)) = outcomes.next().await {
            rewrapped.note(&key, outcome);
        }
        drop(outcomes);
        Ok(rewrapped)
    }

    /// How many open uploads of a bucket are wrapped by a master key other than the first. What they
    /// become will be, too.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; uploads that can't be listed.
    pub async fn outdated_uploads(&self, bucket: &str) -> Result<u64> {
        let session = self.session(STRICT);
        let inner = session.inner();
        let home = inner.bucket(bucket).await?.id;
        let (mut count, mut after) = (0, Some((None, None)));
        while let Some((after_key, after_id)) = after {
            let list = ListUploads { after_key, after_id, limit: UPLOADS, ..Default::default() };
            let page = session.list_uploads(bucket, list).await?;
            for upload in page.uploads {
                let locked = Locked::of(&upload.marks, (home, &upload.key))?;
                count += u64::from(is_outdated(&inner.vault, locked.as_ref()));
            }
            after = page.next.map(|(key, id)| (Some(key), id));
        }
        Ok(count)
    }
}

impl Inner {
    /// Whether the key of one version was wrapped anew. One that has gone, or was written anew, needs it
    /// no more.
    async fn rewrap_one(
        &self,
        (bucket, home): (&str, BucketId),
        name: ObjectName<'_>,
    ) -> Result<bool> {
        let place = (home, name.key);
        let mut is_done = false;
        let mut change = |_: &Entry, object: &Object| {
            let Some(document) = rewrapped(&self.vault, &object.attributes.marks, place)? else {
                is_done = true;
                return Ok(None);
            };
            let mut object = object.clone();
            object.attributes.marks.set(Mark::Encryption, document);
            Ok(Some(object))
        };
        match self.revise_by_operator(bucket, name, &mut change).await {
            Ok(_) => Ok(true),
            Err(_) if is_done => Ok(false),
            Err(Error::NoSuchKey | Error::NoSuchVersion | Error::DeleteMarker { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
