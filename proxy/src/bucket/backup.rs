//! Backup and restore of a bucket's owner and settings.
//!
//! A restored bucket is a new and empty bucket with an id of its own: objects are no part of a
//! backup, and devices may still fence the id of a deleted bucket. Its settings are written with it,
//! in one ballot, so that no write meets it without its policy, its versioning or its lock.

use std::collections::BTreeMap;

use martlet_protocol::backend::{ListStart, RegisterView, Want};
use martlet_protocol::entry::{Bucket, BucketState, Value};
use martlet_protocol::limits::INDEX_SHARDS_MAX;
use martlet_protocol::{
    BucketId, Level, Setting, Settings, Versioning, VersioningSetting, WriteId,
};
use serde::{Deserialize, Serialize};

use super::admin::Buckets;
use super::record::{bucket_of, busy, root, write};
use crate::accounts::Page;
use crate::backup_record::{BackupRecord, RecordKind, RecordState};
use crate::checkpoints::is_companion;
use crate::error::{Error, Result};
use crate::policy::bucket_policy;
use crate::quota::RequestedUsage;
use crate::walk::{Paths, Walk};

/// Content of a bucket's record. Documents are in hexadecimal, by the names of their settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct BucketContent {
    owner: String,
    index_shards: u16,
    storage_policy: String,
    consistency: String,
    settings: BTreeMap<String, String>,
}

/// Bucket as a record describes it, checked against this cluster.
#[derive(Clone)]
pub(crate) struct WantedBucket {
    bucket: Bucket,
    content: BucketContent,
}

impl WantedBucket {
    /// Id of the bucket, should it be created.
    pub(crate) fn id(&self) -> BucketId {
        self.bucket.id
    }

    /// Canonical id of the owner.
    pub(crate) fn owner(&self) -> &str {
        &self.bucket.owner
    }

    /// Returns true if the bucket has checkpoint rules, which need a companion bucket.
    pub(crate) fn has_rules(&self) -> bool {
        self.bucket.settings.get(Setting::Checkpoints).is_some()
    }

    /// Returns this bucket with another id.
    pub(crate) fn as_bucket(&self, id: BucketId) -> Bucket {
        Bucket { id, ..self.bucket.clone() }
    }
}

/// Bucket with the time of the last write of its register, in milliseconds since 1970.
struct DatedBucket {
    written_ms: u64,
    /// The bucket; none after its deletion.
    bucket: Option<Bucket>,
}

/// Buckets of a store, as records of a backup.
#[derive(Clone, Copy)]
pub(crate) struct BucketRecords<'a>(pub(crate) Buckets<'a>);

impl BucketRecords<'_> {
    /// Records of buckets in order of name, above `after`. A page examines `limit` buckets.
    pub(crate) async fn list(
        self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Page<BackupRecord>, Option<String>)> {
        let context = &*self.0.contexts.context();
        let paths = Paths::root("");
        let start = after.map_or(ListStart::First, |name| ListStart::After(name.to_owned().into()));
        let expected = limit.saturating_add(1);
        let mut walk =
            Walk::new(self.0.registers, context, &paths, start, expected, Level::Strict)?;
        let mut page = Page { items: Vec::new(), is_truncated: false };
        let (mut examined, mut last) = (0, None);
        while let Some((name, entry)) = walk.next().await? {
            let Value::Bucket(bucket) = entry.value else { continue };
            if examined == limit {
                page.is_truncated = true;
                break;
            }
            examined += 1;
            let name = crate::walk::text(name)?;
            last = Some(name.clone());
            // Companions are made anew with the rules that they belong to.
            if !is_companion(&name) {
                let content = serde_json::to_value(self.content_of(&bucket))
                    .expect("plain data can be encoded");
                let written_ms = entry.order.time_ms();
                page.items.push(BackupRecord {
                    kind: RecordKind::Bucket,
                    name,
                    written_ms,
                    content,
                });
            }
        }
        Ok((page, last))
    }

    /// Reads a record, and checks it against this cluster.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a malformed record, an unknown setting or storage policy.
    pub(crate) fn wanted(self, record: &BackupRecord) -> Result<WantedBucket> {
        let name = &record.name;
        let malformed =
            || Error::InvalidArgument(format!("the record of the bucket {name} is malformed"));
        let content: BucketContent =
            serde_json::from_value(record.content.clone()).map_err(|_| malformed())?;
        let mut settings = Settings::default();
        for (setting, document) in &content.settings {
            let known = Setting::ALL.into_iter().find(|known| known.name() == setting);
            let known = known.ok_or_else(|| {
                Error::InvalidArgument(format!(
                    "the bucket {name} has the setting {setting:?}, which this release doesn't \
                     know: restore the backup with the release that made it"
                ))
            })?;
            settings.set(known, hex::decode(document).map_err(|_| malformed())?)?;
        }
        let shards = content.index_shards;
        let is_plain =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
        let is_named = (3..=255).contains(&name.len()) && is_plain && !is_companion(name);
        if !shards.is_power_of_two() || shards > INDEX_SHARDS_MAX || !is_named {
            return Err(malformed());
        }
        let versioning = VersioningSetting::of(settings.get(Setting::Versioning)).state;
        if settings.get(Setting::ObjectLock).is_some() && versioning != Versioning::Enabled {
            return Err(malformed());
        }
        let policy =
            bucket_policy(&self.0.contexts.context().cluster, Some(&content.storage_policy))?;
        let bucket = Bucket {
            id: BucketId::random(),
            created_ms: self.0.registers.stamps.now_ms(),
            generation: 1,
            state: BucketState::Open,
            index_shards: shards,
            policy,
            owner: content.owner.clone(),
            consistency: content.consistency.parse().map_err(|_| malformed())?,
            settings,
        };
        Ok(WantedBucket { content: self.content_of(&bucket), bucket })
    }

    /// Compares a record with the bucket of its name. Returns the state, and the bucket's id if it
    /// exists.
    ///
    /// # Errors
    /// [`Error::InvalidBucketState`] if no restore can give the bucket these settings.
    pub(crate) async fn compare(
        self,
        record: &BackupRecord,
        wanted: &WantedBucket,
    ) -> Result<(RecordState, Option<Bucket>)> {
        let Some(DatedBucket { written_ms, bucket }) = self.read_dated(&record.name).await? else {
            return Ok((RecordState::Missing, None));
        };
        let is_same = bucket.as_ref().map(|it| self.content_of(it) == wanted.content);
        let state = RecordState::of(record.written_ms, written_ms, is_same);
        if let (Some(bucket), Some(false)) = (&bucket, is_same) {
            check_reachable(&record.name, bucket, &wanted.bucket)?;
        }
        Ok((state, bucket))
    }

    /// Creates a bucket as a record describes it.
    ///
    /// # Errors
    /// [`Error::BucketExists`] if it was created since the comparison; [`Error::QuotaExceeded`].
    pub(crate) async fn create(self, name: &str, wanted: &WantedBucket) -> Result<()> {
        let bucket = &wanted.bucket;
        let requested = RequestedUsage::bucket(name, bucket);
        let charge = Box::pin(self.0.quotas.charge(bucket, requested)).await?;
        let mut evaluate = |view: &RegisterView| match bucket_of(view) {
            Some(there) => Err(Error::BucketExists { owner: there.owner.clone() }),
            None => Ok(write(bucket)),
        };
        let decided = self.0.catalog.decide(name, WriteId::random(), &mut evaluate).await;
        self.0.catalog.forget(name);
        decided?;
        charge.written(self.0.registers.stamps.now_ms());
        Ok(())
    }

    /// Gives an existing bucket the owner and settings of a record. `before` is the bucket of the
    /// comparison.
    ///
    /// # Errors
    /// Unavailable if the bucket has changed since the comparison: compare again.
    pub(crate) async fn replace(
        self,
        name: &str,
        before: &Bucket,
        wanted: &WantedBucket,
    ) -> Result<()> {
        let state = wanted.bucket.versioning().state;
        if state.keeps_versions() && before.versioning().state != state {
            self.0.set_versioning(name, state == Versioning::Enabled).await?;
        }
        let compared = without_versioning(self.content_of(before));
        let set = |bucket: &mut Bucket| {
            let now = without_versioning(self.content_of(bucket));
            if bucket.id != before.id || now != compared {
                return Err(busy());
            }
            // Documents that this release doesn't know stay. Old ones go first, to make room.
            let all = Setting::ALL.into_iter().filter(|it| *it != Setting::Versioning);
            for setting in all.clone() {
                bucket.settings.remove(setting);
            }
            for setting in all {
                if let Some(document) = wanted.bucket.settings.get(setting) {
                    bucket.settings.set(setting, document.to_vec())?;
                }
            }
            bucket.owner.clone_from(&wanted.bucket.owner);
            bucket.policy = wanted.bucket.policy;
            bucket.consistency = wanted.bucket.consistency;
            bucket.generation += 1;
            Ok(())
        };
        let bucket = self.0.change(name, set).await?;
        // Writes of proxies that cache the old settings are refused: a lock holds from here on.
        self.0.catalog.fences.fence(&bucket, true).await?;
        Ok(())
    }

    async fn read_dated(self, name: &str) -> Result<Option<DatedBucket>> {
        let (view, _) =
            self.0.registers.read_given(&root(name), Want::Entry, Level::Strict).await?;
        Ok(view.entry.as_ref().map(|entry| DatedBucket {
            written_ms: entry.order.time_ms(),
            bucket: bucket_of(&view).cloned(),
        }))
    }

    fn content_of(self, bucket: &Bucket) -> BucketContent {
        let cluster = self.0.contexts.context().cluster.clone();
        let document = |setting: Setting| {
            let document = match setting {
                Setting::Versioning => versioning_document(bucket)?,
                _ => bucket.settings.get(setting)?.to_vec(),
            };
            Some((setting.name().to_owned(), hex::encode(document)))
        };
        let policy = cluster.policy_name(bucket.policy).map(str::to_owned);
        BucketContent {
            owner: bucket.owner.clone(),
            index_shards: bucket.index_shards,
            storage_policy: policy.unwrap_or_else(|| bucket.policy.0.to_string()),
            consistency: bucket.consistency.to_string(),
            settings: Setting::ALL.into_iter().filter_map(document).collect(),
        }
    }
}

/// Versioning of a bucket without the time at which it began; none before it began.
fn versioning_document(bucket: &Bucket) -> Option<Vec<u8>> {
    let state = bucket.versioning().state;
    let is_on = matches!(state, Versioning::Enabled | Versioning::Suspended);
    is_on.then(|| VersioningSetting { state, above_ms: 0 }.document())
}

fn without_versioning(mut content: BucketContent) -> BucketContent {
    content.settings.remove(Setting::Versioning.name());
    content
}

/// Refuses changes that no bucket can make: they are for good.
fn check_reachable(name: &str, now: &Bucket, wanted: &Bucket) -> Result<()> {
    let refused = |what: &str| {
        Err(Error::InvalidBucketState(format!(
            "the bucket {name} {what}: change it by hand, or delete the bucket first"
        )))
    };
    let is_locked = |bucket: &Bucket| bucket.settings.get(Setting::ObjectLock).is_some();
    if now.state == BucketState::Closing {
        return refused("is being deleted");
    }
    if now.index_shards != wanted.index_shards {
        return refused("has another number of index shards than in the backup");
    }
    if versioning_document(now).is_some() && versioning_document(wanted).is_none() {
        return refused("had no versioning in the backup, and versioning can't be turned off");
    }
    if is_locked(now) && !is_locked(wanted) {
        return refused("had no Object Lock in the backup, and a lock can't be removed");
    }
    Ok(())
}
