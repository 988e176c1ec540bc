//! Rewrap of one page of a bucket's versions.
//!
//! A ballot replaces the document of a version's entry, on the condition that the entry still has an
//! outdated one. So a client's concurrent write wins: an overwrite or delete before the ballot leaves
//! nothing to rewrap, and one after it comes above.
//!
//! A write acknowledged without a quorum is kept as a hint (rule A1). The new entry would be above it,
//! and would bring the old object back. So all devices are queried for hints of the bucket before the
//! ballots of a page, and for hints of each version's register if the bucket has some. A version
//! whose hints are unknown is not rewrapped.

use std::sync::Arc;

use futures::{StreamExt, stream};
use martlet_protocol::entry::{Bucket, Entry, Mark, Object};
use martlet_protocol::{BucketId, RegisterKey, RegisterKind, VersionId};
use tokio::time::Instant;

use super::document::{is_outdated, rewrapped};
use super::state::{Rewrap, is_unavailable};
use crate::api::{ListVersions, ListedVersion, ObjectName, VersionPage};
use crate::consistency::ConsistencyOptions;
use crate::context::RequestContext;
use crate::encryption::{Locked, ObjectAddress};
use crate::error::{Error, Result};
use crate::session::Session;
use crate::store::{ObjectStore, Services};
use crate::walk::Paths;

/// Concurrent changes of objects.
const OBJECTS_AT_ONCE: usize = 4;
/// Attempts for each version.
const TRIES: u32 = 3;

/// Start of a page: key and version to continue after. None for the first page.
pub(super) type After = Option<(String, Option<VersionId>)>;

/// Page of versions of a bucket.
pub(super) struct RewrapPage<'a> {
    store: &'a ObjectStore,
    rewrap: &'a Rewrap,
    /// Bucket of the run. Another bucket of this name ends the run.
    home: BucketId,
}

/// Version whose data key another master key wraps.
struct OutdatedVersion {
    key: String,
    id: VersionId,
}

impl<'a> RewrapPage<'a> {
    pub(super) fn new(store: &'a ObjectStore, rewrap: &'a Rewrap, home: BucketId) -> Self {
        Self { store, rewrap, home }
    }

    /// A session with the current rings.
    fn session(&self) -> Session {
        self.store.session(ConsistencyOptions::STRICT)
    }

    /// Rewraps the versions after `after`. Returns the start of the next page, if more follows.
    /// Versions that fail are noted.
    ///
    /// # Errors
    /// A failed listing; another bucket has the name; a stop; too many consecutive failures.
    pub(super) async fn run(&self, after: After) -> Result<After> {
        let (bucket, VersionPage { versions, next, .. }) = self.read(after.as_ref()).await?;
        if bucket.id != self.home {
            let sentence = "the bucket was deleted and made again: start the rewrap anew";
            return Err(Error::InvalidBucketState(sentence.to_owned()));
        }
        let vault = &*self.store.services.vault;
        let (seen, mut outdated) = (versions.len() as u64, Vec::new());
        for ListedVersion { key, id, object, .. } in versions {
            let Some(object) = object else { continue };
            let address = ObjectAddress { bucket: self.home, key: &key };
            match Locked::of(&object.attributes.marks, address) {
                Ok(it) if is_outdated(vault, it.as_ref()) => {
                    outdated.push(OutdatedVersion { key, id });
                }
                Ok(_) => {}
                Err(error) => self.rewrap.note(&key, Err(error.into())),
            }
        }
        let may_have_hints = !outdated.is_empty() && self.may_have_hints(&bucket).await;
        let registers = may_have_hints.then_some(bucket.index_shards);
        stream::iter(outdated)
            .for_each_concurrent(OBJECTS_AT_ONCE, |version| async move {
                if self.rewrap.check().is_ok() {
                    let outcome = self.rewrap_version(&version, registers).await;
                    self.rewrap.note(&version.key, outcome);
                }
            })
            .await;
        // The rest of a page of an ended run was not examined.
        self.rewrap.check()?;
        self.rewrap.note_page(seen);
        Ok(next)
    }

    /// Reads the bucket and the versions of the page, again and again while too few devices answer.
    async fn read(
        &self,
        after: Option<&(String, Option<VersionId>)>,
    ) -> Result<(Arc<Bucket>, VersionPage)> {
        let began = Instant::now();
        loop {
            match self.read_once(after).await {
                Ok(read) => return Ok(read),
                Err(error) => self.rewrap.wait_after(began, error).await?,
            }
        }
    }

    async fn read_once(
        &self,
        after: Option<&(String, Option<VersionId>)>,
    ) -> Result<(Arc<Bucket>, VersionPage)> {
        let session = self.session();
        let (after_key, after_version) = after.cloned().unzip();
        let (after_version, limit) = (after_version.flatten(), self.rewrap.page());
        let list = ListVersions { after_key, after_version, limit, ..Default::default() };
        let page = session.versions().list(self.rewrap.bucket(), list).await?;
        Ok((session.bucket(self.rewrap.bucket()).await?, page))
    }

    /// Returns false if every device replies that it keeps no hints for objects of the bucket.
    async fn may_have_hints(&self, bucket: &Bucket) -> bool {
        let paths = Paths::all(bucket, RegisterKind::Object);
        self.store.services.buckets.fences.check_nothing_kept(paths).await.is_err()
    }

    /// Rewraps one version; returns true if it was changed. `registers` is the number of shards if
    /// hints of the version's register have to be ruled out.
    async fn rewrap_version(
        &self,
        OutdatedVersion { key, id }: &OutdatedVersion,
        registers: Option<u16>,
    ) -> Result<bool> {
        let mut tries = 0;
        loop {
            let outcome = match registers {
                Some(shards) => self.check_no_hints(key, shards).await,
                None => Ok(()),
            };
            let name = ObjectName { key, version: Some(*id) };
            let outcome = match outcome {
                Ok(()) => {
                    let context = self.session().context();
                    let (services, bucket) = (&*self.store.services, self.rewrap.bucket());
                    rewrap_one(services, &context, bucket, self.home, name).await
                }
                Err(error) => Err(error),
            };
            tries += 1;
            match outcome {
                Err(error) if is_unavailable(&error) && tries < TRIES => {
                    self.rewrap.rest_after(tries).await?;
                }
                outcome => return outcome,
            }
        }
    }

    async fn check_no_hints(&self, key: &str, shards: u16) -> Result<()> {
        let RegisterKey { bucket, shard, kind, name } = RegisterKey::object(self.home, shards, key);
        let paths = Paths { bucket, shards: vec![shard], kind, prefix: name, fold: None };
        Ok(self.store.services.buckets.fences.check_nothing_kept(paths).await?)
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
