//! Counts of bucket usage for the worker: the bucket itself, its versions and delete markers shard
//! by shard, then open uploads and their parts.
//!
//! Counts are read from a quorum. A count is no snapshot: a concurrent write may be included or
//! not. So proxies add their own writes since the count's start.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use martlet_protocol::entry::Bucket;
use martlet_protocol::usage::{Count, CountAt, Countable, Usage, UsageCounter};
use martlet_protocol::{BucketId, Level, Shard};

use super::quota_of;
use crate::accounts::BucketUsage;
use crate::api::{ListUploads, ListVersions, UploadInfo};
use crate::error::{Error, Result};
use crate::session::Ask;
use crate::store::ObjectStore;

/// Versions in one step.
const VERSIONS: usize = 1000;
/// Uploads in one step.
const UPLOADS: usize = 50;
/// Buckets on one page.
const BUCKETS: usize = 1000;
/// Strict reads: counts need a quorum.
const STRICT: Ask = Ask { level: Some(Level::Strict), read_after: None };

#[async_trait]
impl UsageCounter for ObjectStore {
    async fn countable(&self) -> martlet_protocol::Result<Vec<Countable>> {
        Box::pin(self.session(STRICT).all_countable()).await.map_err(told)
    }

    async fn count(&self, count: &mut Count) -> martlet_protocol::Result<()> {
        Box::pin(self.session(STRICT).count_on(count)).await.map_err(told)
    }

    async fn report(&self, count: &Count) -> martlet_protocol::Result<()> {
        let usage = BucketUsage::of(count, self.inner().stamps.now_ms());
        Box::pin(self.put_usage(&usage)).await.map_err(told)
    }
}

fn told(error: Error) -> martlet_protocol::Error {
    match error {
        Error::Backend(error) => error,
        error => martlet_protocol::Error::unavailable(error.to_string()),
    }
}

impl ObjectStore {
    /// Counts one bucket from start to end.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; too few nodes replied.
    pub async fn count_bucket(&self, name: &str) -> Result<Count> {
        let session = self.session(STRICT);
        let bucket = session.bucket(name).await?;
        let (id, owner) = (bucket.id, bucket.owner.clone());
        let countable = Countable { id, name: name.to_owned(), owner, counted: None };
        let mut count = Count::begin(countable, self.inner().stamps.now_ms());
        while count.at != CountAt::Done {
            Box::pin(session.count_on(&mut count)).await?;
        }
        Ok(count)
    }

    /// Last count of a bucket, if any.
    ///
    /// # Errors
    /// Fails if too few nodes reply.
    pub async fn bucket_usage(&self, bucket: &Bucket) -> Result<Option<BucketUsage>> {
        self.usage(&bucket.owner, bucket.id).await
    }

    async fn all_countable(&self) -> Result<Vec<Countable>> {
        let tenants = self.tenants_that(|tenant| !tenant.quota.is_none()).await?;
        let limited: HashSet<String> = tenants.into_iter().map(|it| it.canonical_id).collect();
        let usages = self.usages(None).await?;
        let mut last: HashMap<BucketId, BucketUsage> = HashMap::new();
        for usage in usages {
            match usage.bucket_id.parse() {
                Ok(id) => drop(last.insert(id, usage)),
                Err(_) => self.delete_usage(&usage).await?,
            }
        }
        let mut countable = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let (page, more) = self.list_buckets("", after.as_deref(), BUCKETS).await?;
            after = page.last().map(|named| named.name.clone());
            for named in page {
                let (name, bucket) = (named.name, named.bucket);
                if quota_of(&bucket).is_none() && !limited.contains(&bucket.owner) {
                    continue;
                }
                let counted = last.remove(&bucket.id).map(|it| (it.began_ms, it.took_ms));
                countable.push(Countable { id: bucket.id, name, owner: bucket.owner, counted });
            }
            if !more || after.is_none() {
                break;
            }
        }
        // The remaining counts are of buckets that are deleted or have no quota any more.
        for usage in last.values() {
            self.delete_usage(usage).await?;
        }
        Ok(countable)
    }

    async fn count_on(&self, count: &mut Count) -> Result<()> {
        let name = &count.bucket.name;
        let bucket = self.inner().bucket_with_versions(name).await?;
        if bucket.id != count.bucket.id {
            return Err(Error::NoSuchBucket);
        }
        let (usage, seen, at) = match count.at.clone() {
            CountAt::Versions(shard, after) => {
                let is_first = shard == Shard(0) && after.is_none();
                let (usage, seen, at) = self.count_versions(&bucket, shard, after).await?;
                let own = if is_first { Usage::of_bucket(name, &bucket) } else { Usage::default() };
                (usage.plus(own), seen, at)
            }
            CountAt::Uploads(after) => self.count_uploads(name, after).await?,
            CountAt::Done => (Usage::default(), 0, CountAt::Done),
        };
        (count.usage, count.seen, count.at) = (count.usage.plus(usage), seen, at);
        Ok(())
    }

    async fn count_versions(
        &self,
        bucket: &Bucket,
        shard: Shard,
        after: Option<(String, Option<martlet_protocol::VersionId>)>,
    ) -> Result<(Usage, u64, CountAt)> {
        let (after_key, after_version) = after.unzip();
        let after_version = after_version.flatten();
        let list =
            ListVersions { after_key, after_version, limit: VERSIONS, ..ListVersions::default() };
        let page = self.inner().list_versions(bucket, &list, Some(shard)).await?;
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
            None if shard.0 + 1 < bucket.index_shards => {
                CountAt::Versions(Shard(shard.0 + 1), None)
            }
            None => CountAt::Uploads(None),
        };
        Ok((usage, page.versions.len() as u64, at))
    }

    async fn count_uploads(
        &self,
        bucket: &str,
        after: Option<(String, Option<martlet_protocol::UploadId>)>,
    ) -> Result<(Usage, u64, CountAt)> {
        let (after_key, after_id) = after.unzip();
        let after_id = after_id.flatten();
        let list = ListUploads { after_key, after_id, limit: UPLOADS, ..ListUploads::default() };
        let page = self.list_uploads(bucket, list).await?;
        let (mut usage, mut seen) = (Usage::default(), 0);
        for upload in &page.uploads {
            let (of_parts, parts) = self.count_parts(bucket, upload).await?;
            let own = Usage { index: upload.index_bytes, ..Usage::default() };
            usage = usage.plus(own).plus(of_parts);
            seen += parts + 1;
        }
        let at = page.next.map_or(CountAt::Done, |next| CountAt::Uploads(Some(next)));
        Ok((usage, seen, at))
    }

    /// Usage and number of an upload's parts; zero if the upload has ended.
    async fn count_parts(&self, bucket: &str, upload: &UploadInfo) -> Result<(Usage, u64)> {
        match self.inner().usage_of_parts(bucket, &upload.key, upload.id).await {
            Err(Error::NoSuchUpload) => Ok((Usage::default(), 0)),
            counted => counted,
        }
    }
}
