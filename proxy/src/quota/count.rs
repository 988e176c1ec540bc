//! Counts of bucket usage for the worker: by the [rows of devices](super::rows), or by a listing of
//! the bucket's versions and delete markers shard by shard, then of open uploads and their parts.
//!
//! Listings serve buckets with a quota while too few devices keep rows. Counts are read from a
//! quorum. A count is no snapshot: a concurrent write may be included or not. So proxies add their
//! own writes since the count's start.

use std::collections::{BTreeSet, HashMap, HashSet};

use async_trait::async_trait;
use futures::{FutureExt, StreamExt, stream};
use martlet_protocol::Shard;
use martlet_protocol::entry::Bucket;
use martlet_protocol::key::shard_of;
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::usage::{Count, CountAt, Countable, Counted, Usage, UsageCounter};

use super::client::quota_of;
use super::rows;
use crate::accounts::usage::BucketUsage;
use crate::api::{ListUploads, ListVersions, UploadInfo};
use crate::consistency::ConsistencyOptions;
use crate::error::{Error, Result};
use crate::multipart::UploadName;
use crate::store::ObjectStore;

/// Versions in one step.
const VERSIONS: usize = 1000;
/// Uploads in one step.
const UPLOADS: usize = 50;
/// Buckets on one page.
const BUCKETS: usize = 1000;
/// Counts of deleted buckets that one look deletes at most, and at a time.
const FORGOTTEN_MAX: usize = 4096;
const FORGOTTEN_AT_ONCE: usize = 8;
/// Age in milliseconds from which any look deletes the count of a deleted bucket, whatever its shard: the
/// worker of the shard may be down.
const FORGOTTEN_BY_ALL_MS: u64 = 60 * 60 * 1000;

#[async_trait]
impl UsageCounter for ObjectStore {
    async fn countable(
        &self,
        shards: &BTreeSet<Shard>,
    ) -> martlet_protocol::Result<Vec<Countable>> {
        Box::pin(countable_in(&self.session(ConsistencyOptions::STRICT), shards))
            .await
            .map_err(Error::into_backend)
    }

    async fn last_count(&self, bucket: &Countable) -> martlet_protocol::Result<Option<Counted>> {
        let usage = Box::pin(self.services.directory.usage_of(&bucket.owner, bucket.id));
        Ok(usage.await.map_err(Error::into_backend)?.map(counted_by))
    }

    async fn add_up(&self, buckets: &[Countable]) -> martlet_protocol::Result<Vec<Option<Usage>>> {
        Box::pin(rows::add_up(&self.services.registers, buckets)).await.map_err(Error::into_backend)
    }

    async fn count(&self, count: &mut Count) -> martlet_protocol::Result<()> {
        Box::pin(count_on(&self.session(ConsistencyOptions::STRICT), count))
            .await
            .map_err(Error::into_backend)
    }

    async fn report(&self, count: &Count) -> martlet_protocol::Result<()> {
        let usage = BucketUsage::of(count, self.services.registers.stamps.now_ms());
        let directory = &self.services.directory;
        let last = Box::pin(directory.usage_of(&count.bucket.owner, count.bucket.id)).await;
        // A long listing ends after a count that began later. That one has newer writes.
        if last.map_err(Error::into_backend)?.is_some_and(|last| last.began_ms > usage.began_ms) {
            return Ok(());
        }
        Box::pin(directory.put_usage(&usage)).await.map_err(Error::into_backend)
    }
}

/// Progress of the count of a bucket by listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountProgress {
    /// Versions, uploads and parts counted so far.
    pub seen: u64,
    /// Of these, those in shards that are counted to their end.
    pub seen_in_shards: u64,
    /// Shards that are counted to their end.
    pub shards: u16,
    /// All shards of the bucket. Names are spread over them by their hash, so shards are about
    /// equal. 0 while no listing has begun.
    pub all_shards: u16,
    /// Versions at the last count of the bucket. None before a count.
    pub last: Option<u64>,
}

impl CountProgress {
    fn note(&mut self, count: &Count) {
        self.all_shards = count.bucket.index_shards;
        self.seen += count.seen;
        let shards = match &count.at {
            CountAt::Versions(shard, _) => shard.0,
            CountAt::Uploads(_) | CountAt::Done => count.bucket.index_shards,
        };
        if shards > self.shards {
            (self.shards, self.seen_in_shards) = (shards, self.seen);
        }
    }
}

impl ObjectStore {
    /// Counts one bucket: by the rows of devices, or by a listing from start to end. `observe`
    /// receives the progress of a listing after each page.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; too few nodes replied.
    pub async fn count_bucket(
        &self,
        name: &str,
        observe: &mut (dyn FnMut(&CountProgress) + Send),
    ) -> Result<Count> {
        let session = self.session(ConsistencyOptions::STRICT);
        let bucket = session.bucket(name).await?;
        let limited = !quota_of(&bucket).is_none();
        let countable = countable_of(name.to_owned(), &bucket, limited);
        let began_ms = self.services.registers.stamps.now_ms();
        let added_up = rows::add_up(&self.services.registers, std::slice::from_ref(&countable));
        if let Some(Some(usage)) = Box::pin(added_up).await?.pop() {
            return Ok(Count::done(countable, began_ms, usage));
        }
        let last = self.services.directory.bucket_usage(&bucket).await;
        let last = last.ok().flatten().map(|last| last.usage.objects);
        let mut progress = CountProgress { last, ..CountProgress::default() };
        let mut count = Count::begin(countable, began_ms);
        while count.at != CountAt::Done {
            Box::pin(count_on(&session, &mut count)).await?;
            progress.note(&count);
            observe(&progress);
        }
        Ok(count)
    }
}

fn countable_of(name: String, bucket: &Bucket, limited: bool) -> Countable {
    let own = Usage::of_bucket(&name, bucket);
    let Bucket { id, owner, index_shards, .. } = bucket;
    let (id, owner, index_shards) = (*id, owner.clone(), *index_shards);
    Countable { id, name, owner, index_shards, limited, own, counted: None }
}

fn counted_by(BucketUsage { usage, began_ms, took_ms, .. }: BucketUsage) -> Counted {
    Counted { usage, began_ms, took_ms }
}

/// Returns the shard to which the count of a deleted bucket falls. Its name is unknown.
fn shard_of_count(usage: &BucketUsage) -> Shard {
    shard_of(usage.bucket_id.as_bytes(), INDEX_SHARDS_DEFAULT)
}

/// Returns the buckets of some shards of the list of buckets, and deletes counts of deleted buckets.
async fn countable_in(store: &ObjectStore, shards: &BTreeSet<Shard>) -> Result<Vec<Countable>> {
    let tenants = store.services.directory.tenants_that(|tenant| !tenant.quota.is_none()).await?;
    let limited: HashSet<String> = tenants.into_iter().map(|it| it.canonical_id).collect();
    // Counts are listed before buckets: a count without a bucket is of a deleted one.
    let usages = store.services.directory.usages(None).await?;
    let mut last: HashMap<String, BucketUsage> =
        usages.into_iter().map(|usage| (usage.bucket_id.clone(), usage)).collect();
    let mut countable = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let (page, more) = store.buckets().list("", after.as_deref(), BUCKETS).await?;
        after = page.last().map(|named| named.name.clone());
        for named in page {
            let (name, bucket) = (named.name, named.bucket);
            let counted = last.remove(&bucket.id.to_string()).map(counted_by);
            if shards.contains(&shard_of(name.as_bytes(), INDEX_SHARDS_DEFAULT)) {
                let is_limited = !quota_of(&bucket).is_none() || limited.contains(&bucket.owner);
                countable.push(Countable { counted, ..countable_of(name, &bucket, is_limited) });
            }
        }
        if !more || after.is_none() {
            break;
        }
    }
    let now_ms = store.services.registers.stamps.now_ms();
    let is_old = |usage: &BucketUsage| now_ms.saturating_sub(usage.began_ms) > FORGOTTEN_BY_ALL_MS;
    let is_ours = |usage: &BucketUsage| shards.contains(&shard_of_count(usage)) || is_old(usage);
    let deleted = last.into_values().filter(is_ours);
    forget(store, deleted.take(FORGOTTEN_MAX).collect()).await;
    Ok(countable)
}

/// Deletes counts. One that can't be deleted is found again by the next look.
async fn forget(store: &ObjectStore, counts: Vec<BucketUsage>) {
    let deletes = counts.into_iter().map(|usage| async move {
        let deleted = store.services.directory.delete_usage(&usage).await;
        if let Err(error) = deleted {
            let bucket = &usage.bucket_id;
            tracing::debug!(bucket, %error, "could not delete the count of a deleted bucket yet");
        }
    });
    let deletes: Vec<_> = deletes.map(FutureExt::boxed).collect();
    stream::iter(deletes).buffer_unordered(FORGOTTEN_AT_ONCE).for_each(|()| async {}).await;
}

async fn count_on(store: &ObjectStore, count: &mut Count) -> Result<()> {
    let name = &count.bucket.name;
    let bucket = store.services.buckets.bucket_with_versions(&store.context(), name).await?;
    if bucket.id != count.bucket.id {
        return Err(Error::NoSuchBucket);
    }
    let (usage, seen, at) = match count.at.clone() {
        CountAt::Versions(shard, after) => {
            let is_first = shard == Shard(0) && after.is_none();
            let (usage, seen, at) = count_versions(store, &bucket, shard, after).await?;
            let own = if is_first { Usage::of_bucket(name, &bucket) } else { Usage::default() };
            (usage.plus(own), seen, at)
        }
        CountAt::Uploads(after) => count_uploads(store, name, after).await?,
        CountAt::Done => (Usage::default(), 0, CountAt::Done),
    };
    (count.usage, count.seen, count.at) = (count.usage.plus(usage), seen, at);
    Ok(())
}

async fn count_versions(
    store: &ObjectStore,
    bucket: &Bucket,
    shard: Shard,
    after: Option<(String, Option<martlet_protocol::VersionId>)>,
) -> Result<(Usage, u64, CountAt)> {
    let (after_key, after_version) = after.unzip();
    let after_version = after_version.flatten();
    let list =
        ListVersions { after_key, after_version, limit: VERSIONS, ..ListVersions::default() };
    let page =
        store.services.listings.version_page(&store.context(), bucket, &list, Some(shard)).await?;
    let mut usage = Usage::default();
    for version in &page.versions {
        let of_version = match &version.object {
            Some(object) => Usage::of_object(&version.key, object),
            None => Usage::of_marker(&version.key),
        };
        usage = usage.plus(of_version);
    }
    let at = match page.next {
        Some(next) => CountAt::Versions(shard, Some(next)),
        None if shard.0 + 1 < bucket.index_shards => CountAt::Versions(Shard(shard.0 + 1), None),
        None => CountAt::Uploads(None),
    };
    Ok((usage, page.versions.len() as u64, at))
}

async fn count_uploads(
    store: &ObjectStore,
    bucket: &str,
    after: Option<(String, Option<martlet_protocol::UploadId>)>,
) -> Result<(Usage, u64, CountAt)> {
    let (after_key, after_id) = after.unzip();
    let after_id = after_id.flatten();
    let list = ListUploads { after_key, after_id, limit: UPLOADS, ..ListUploads::default() };
    let page = store.uploads().list(bucket, list).await?;
    let (mut usage, mut seen) = (Usage::default(), 0);
    for upload in &page.uploads {
        let (of_parts, parts) = count_parts(store, bucket, upload).await?;
        let own = Usage { index: upload.index_bytes, ..Usage::default() };
        usage = usage.plus(own).plus(of_parts);
        seen += parts + 1;
    }
    let at = page.next.map_or(CountAt::Done, |next| CountAt::Uploads(Some(next)));
    Ok((usage, seen, at))
}

/// Usage and number of an upload's parts; zero if the upload has ended.
async fn count_parts(
    store: &ObjectStore,
    bucket: &str,
    upload: &UploadInfo,
) -> Result<(Usage, u64)> {
    let name = UploadName { bucket, key: &upload.key, id: upload.id };
    match store.services.multipart.parts.usage_of_parts(&store.context(), name).await {
        Err(Error::NoSuchUpload) => Ok((Usage::default(), 0)),
        counted => counted,
    }
}
