//! Records and manifests of sets, as objects of a companion bucket.
//!
//! ```text
//! .checkpoints-<bucket id>     owner and index as the bucket's; no client can name it
//!   parent                     name of the bucket
//!   s/<set>                    record of a set: JSON, with the newest generation in its metadata
//!   m/<set id>/<token>         a manifest
//! ```
//!
//! Records change by conditional writes alone, so each change is a ballot on the record's register.
//! Everything about registers and extents (repair, moves, audit, reclaim) holds for them as well.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use martlet_protocol::backend::ListStart;
use martlet_protocol::entry::{Attributes, Bucket, Object, Value};
use martlet_protocol::id::random_bytes;
use martlet_protocol::{BucketId, RegisterKind};

use super::manifest::{ENCODED_BYTES_MAX, Manifest, ManifestCache};
use super::pins::SetId;
use super::records::SetRecord;
use super::tenant_turns::TenantTurns;
use crate::api::{
    DeleteConditions, ETagCondition, NewBody, ObjectName, ReadConditions, Selection,
    WriteConditions,
};
use crate::bucket::BucketCatalog;
use crate::consistency::ConsistencyOptions;
use crate::context::RequestContext;
use crate::delete::ObjectRemover;
use crate::error::{Error, Result};
use crate::index::RegisterClient;
use crate::listing::Listings;
use crate::put::ObjectWriter;
use crate::read::ObjectReader;
use crate::shared_loads::SharedLoads;
use crate::walk::{Paths, Walk};

/// Prefix of the names of companion buckets. Clients can't name such buckets: a name starts with a
/// letter or digit.
pub(crate) const COMPANION_PREFIX: &str = ".checkpoints-";
/// Key prefix of records.
pub(crate) const RECORDS: &str = "s/";
/// Key of the object that names the companion's bucket.
pub(crate) const PARENT: &str = "parent";
/// Metadata of a record: number and manifest of its newest generation.
const NEWEST: &str = "newest";
/// Longest name of a set in bytes: its record's key is longer.
pub(crate) const SET_BYTES_MAX: usize = 1000;
/// Number of attempts at a change of a record.
const ATTEMPTS: usize = 16;
/// Manifests that one process loads at once: each may have 64 MiB, and as many bytes in memory.
const LOADS_AT_ONCE: usize = 6;
/// Of these, manifests of one tenant.
const LOADS_OF_TENANT: usize = 2;
/// Longest record in bytes.
const RECORD_BYTES_MAX: usize = 4 << 20;

/// Name of the companion of a bucket.
pub(crate) fn companion_of(bucket: BucketId) -> String {
    format!("{COMPANION_PREFIX}{bucket}")
}

fn record_key(set: &str) -> String {
    format!("{RECORDS}{set}")
}

fn manifest_key(set: &str, token: &str) -> String {
    format!("m/{}/{token}", SetId::of(set).text())
}

/// The newest generation of a set, as the record's metadata names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Newest {
    pub(crate) number: u64,
    pub(crate) manifest: String,
}

impl Newest {
    /// The newest generation named by a record's object; none if no generation is committed.
    pub(crate) fn of(record: &Object) -> Option<Self> {
        let metadata = &record.attributes.user_metadata;
        let (_, text) = metadata.iter().find(|(name, _)| name == NEWEST)?;
        let (number, manifest) = text.split_once(' ')?;
        Some(Self { number: number.parse().ok()?, manifest: manifest.to_owned() })
    }

    fn of_record(record: &SetRecord) -> Option<Self> {
        let newest = record.newest()?;
        Some(Self { number: newest.number, manifest: newest.manifest.clone()? })
    }
}

/// A set in a bucket.
#[derive(Clone, Copy)]
pub(crate) struct SetName<'a> {
    pub(crate) bucket: BucketId,
    pub(crate) bucket_name: &'a str,
    /// Owner of the bucket.
    pub(crate) owner: &'a str,
    pub(crate) set: &'a str,
}

impl<'a> SetName<'a> {
    pub(crate) fn of(bucket: &'a Bucket, bucket_name: &'a str, set: &'a str) -> Self {
        Self { bucket: bucket.id, bucket_name, owner: &bucket.owner, set }
    }
}

/// Records and manifests of sets.
pub(crate) struct SetStore {
    pub(super) registers: Arc<RegisterClient>,
    pub(super) catalog: Arc<BucketCatalog>,
    pub(super) writer: Arc<ObjectWriter>,
    pub(super) reader: Arc<ObjectReader>,
    pub(super) remover: ObjectRemover,
    pub(super) listings: Listings,
    pub(super) manifests: ManifestCache,
    /// Turns at loading a manifest.
    loads: TenantTurns,
    /// Loads by token: many readers of one generation load its manifest once.
    loading: SharedLoads<String, Arc<Manifest>>,
}

impl SetStore {
    pub(crate) fn new(
        writer: Arc<ObjectWriter>,
        reader: Arc<ObjectReader>,
        remover: ObjectRemover,
        listings: Listings,
    ) -> Self {
        let (registers, catalog) = (reader.registers.clone(), reader.catalog.clone());
        let manifests = ManifestCache::default();
        let loads = TenantTurns::new(LOADS_AT_ONCE, LOADS_OF_TENANT);
        let loading = SharedLoads::default();
        Self { registers, catalog, writer, reader, remover, listings, manifests, loads, loading }
    }
}

/// A random token.
pub(crate) fn random_token() -> String {
    hex::encode(random_bytes::<16>())
}

impl SetStore {
    /// A context whose reads come from a quorum, at the current rings.
    pub(crate) fn context(&self) -> RequestContext {
        let cluster = self.registers.replicas.topology.cluster();
        RequestContext::new(cluster, ConsistencyOptions::STRICT)
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.registers.stamps.now_ms()
    }

    /// Writes the name of the bucket into its companion, which must exist. A bucket whose register was
    /// lost may have another name since.
    pub(crate) async fn name_parent(&self, bucket: BucketId, name: &str) -> Result<()> {
        let only_new = WriteConditions { if_match: None, if_none_match: Some(ETagCondition::Any) };
        let bytes = Bytes::copy_from_slice(name.as_bytes());
        match self.put(bucket, PARENT, bytes.clone(), Attributes::default(), &only_new).await {
            Err(Error::PreconditionFailed(_)) => {}
            outcome => return outcome,
        }
        if self.parent(&companion_of(bucket)).await?.as_deref() == Some(name) {
            return Ok(());
        }
        let any = WriteConditions::default();
        self.put(bucket, PARENT, bytes, Attributes::default(), &any).await
    }

    /// The bucket whose companion this is; none if it was never named.
    pub(crate) async fn parent(&self, companion: &str) -> Result<Option<String>> {
        let Some((_, bytes)) = self.get(companion, PARENT, 1024).await? else { return Ok(None) };
        Ok(String::from_utf8(bytes.into()).ok())
    }

    /// The record of a set, and its ETag; none if it has none.
    pub(crate) async fn record(
        &self,
        bucket: BucketId,
        set: &str,
    ) -> Result<Option<(SetRecord, String)>> {
        let companion = companion_of(bucket);
        let found = self.get(&companion, &record_key(set), RECORD_BYTES_MAX).await?;
        let Some((object, bytes)) = found else { return Ok(None) };
        let record = serde_json::from_slice(&bytes).map_err(|_| {
            Error::Backend(martlet_protocol::Error::corrupt(
                "the record of a checkpoint set can't be decoded",
            ))
        })?;
        Ok(Some((record, object.etag.to_string())))
    }

    /// Changes the record of a set by compare-and-set. `change` runs again after each concurrent
    /// change. A missing record is begun.
    ///
    /// # Errors
    /// Those of `change`; too few nodes replied: the change may have been made then.
    pub(crate) async fn change<T>(
        &self,
        bucket: BucketId,
        set: &str,
        mut change: impl FnMut(&mut SetRecord) -> Result<T> + Send,
    ) -> Result<T> {
        if set.len() > SET_BYTES_MAX {
            let message = format!("the name of a set must have at most {SET_BYTES_MAX} bytes");
            return Err(Error::InvalidArgument(message));
        }
        for _ in 0..ATTEMPTS {
            let (mut record, etag) = match self.record(bucket, set).await? {
                Some((record, etag)) => (record, Some(etag)),
                None => (SetRecord::new(set), None),
            };
            let before = record.clone();
            let changed = change(&mut record)?;
            if record == before {
                return Ok(changed);
            }
            record.revision += 1;
            if self.write_record(bucket, &record, etag).await? {
                return Ok(changed);
            }
        }
        Err(martlet_protocol::Error::unavailable("too many concurrent changes of this set").into())
    }

    /// Writes a record over the state with this ETag; returns false if another is there.
    async fn write_record(
        &self,
        bucket: BucketId,
        record: &SetRecord,
        etag: Option<String>,
    ) -> Result<bool> {
        let conditions = match etag {
            Some(etag) => WriteConditions {
                if_match: Some(ETagCondition::OneOf(vec![etag])),
                if_none_match: None,
            },
            None => WriteConditions { if_match: None, if_none_match: Some(ETagCondition::Any) },
        };
        let mut attributes = Attributes::default();
        if let Some(Newest { number, manifest }) = Newest::of_record(record) {
            attributes.user_metadata = vec![(NEWEST.to_owned(), format!("{number} {manifest}"))];
        }
        let bytes = serde_json::to_vec(record).expect("a record in memory can be written");
        let key = record_key(&record.name);
        match self.put(bucket, &key, bytes.into(), attributes, &conditions).await {
            Ok(()) => Ok(true),
            Err(Error::PreconditionFailed(_) | Error::ConditionalConflict | Error::NoSuchKey) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// The newest generation of a set, from a quorum; none if no generation is committed.
    pub(crate) async fn newest(&self, bucket: BucketId, set: &str) -> Result<Option<Newest>> {
        let (context, companion) = (self.context(), companion_of(bucket));
        let (key, any) = (record_key(set), ReadConditions::default());
        let head = self.reader.head(&context, &companion, key.as_str(), Selection::Whole, &any);
        match Box::pin(head).await {
            Ok(read) => Ok(Newest::of(&read.object)),
            Err(Error::NoSuchKey | Error::NoSuchBucket) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes the record of a set, if it still has this ETag.
    pub(crate) async fn delete_record(
        &self,
        bucket: BucketId,
        set: &str,
        etag: String,
    ) -> Result<()> {
        let conditions = DeleteConditions {
            if_match: Some(ETagCondition::OneOf(vec![etag])),
            ..DeleteConditions::default()
        };
        self.delete(bucket, &record_key(set), &conditions).await
    }

    /// Writes a manifest under a new token, and returns the token.
    pub(crate) async fn save(&self, bucket: BucketId, manifest: &Manifest) -> Result<String> {
        let token = random_token();
        let only_new = WriteConditions { if_match: None, if_none_match: Some(ETagCondition::Any) };
        let (key, bytes) = (manifest_key(&manifest.set, &token), manifest.encode());
        if bytes.len() > ENCODED_BYTES_MAX {
            let (size, maximum) = (bytes.len() as u64, ENCODED_BYTES_MAX as u64);
            return Err(Error::EntityTooLarge { size, maximum });
        }
        self.put(bucket, &key, bytes.into(), Attributes::default(), &only_new).await?;
        Ok(token)
    }

    /// A manifest, from the cache or from its object.
    ///
    /// # Errors
    /// It can't be read, or isn't there although a record names it: both may pass.
    pub(crate) async fn manifest(&self, set: SetName<'_>, token: &str) -> Result<Arc<Manifest>> {
        if let Some(cached) = self.manifests.get(token) {
            return Ok(cached);
        }
        let load = async {
            let _turn = self.loads.acquire(set.owner).await?;
            // A load that ended since the look-up.
            if let Some(cached) = self.manifests.get(token) {
                return Ok(cached);
            }
            let (companion, key) = (companion_of(set.bucket), manifest_key(set.set, token));
            let found = self.get(&companion, &key, ENCODED_BYTES_MAX).await?;
            let Some((_, bytes)) = found else {
                let message = "the manifest of a generation isn't there";
                return Err(martlet_protocol::Error::unavailable(message).into());
            };
            let manifest = Arc::new(Manifest::decode(&bytes)?);
            self.manifests.put(token, manifest.clone());
            Ok(manifest)
        };
        self.loading.join(token.to_owned(), load).await
    }

    /// Deletes a manifest.
    pub(crate) async fn delete_manifest(
        &self,
        bucket: BucketId,
        set: &str,
        token: &str,
    ) -> Result<()> {
        self.delete(bucket, &manifest_key(set, token), &DeleteConditions::default()).await
    }

    /// Tokens of the manifests of a set that were written before `before_ms`, at most `limit`.
    pub(crate) async fn tokens(
        &self,
        bucket: BucketId,
        set: &str,
        before_ms: u64,
        limit: usize,
    ) -> Result<Vec<String>> {
        let context = self.context();
        let companion = self.catalog.bucket(&context, &companion_of(bucket)).await?;
        let prefix = manifest_key(set, "");
        let paths = Paths::all(&companion, RegisterKind::Object).below(prefix.as_bytes());
        let mut walk =
            self.listings.walk_whole(&context, &companion, &paths, ListStart::First, limit)?;
        let mut tokens = Vec::new();
        while tokens.len() < limit
            && let Some((name, entry)) = walk.next().await?
        {
            let Value::Object(object) = entry.value else { continue };
            if object.modified_ms < before_ms
                && let Ok(token) = std::str::from_utf8(&name[prefix.len()..])
            {
                tokens.push(token.to_owned());
            }
        }
        Ok(tokens)
    }

    /// A walk over the records of a companion bucket whose sets begin with `prefix`.
    pub(crate) fn records<'a>(
        &'a self,
        context: &'a RequestContext,
        companion: &Bucket,
        prefix: &str,
        start: ListStart,
        limit: usize,
    ) -> Result<Walk<'a>> {
        let prefix = record_key(prefix);
        let paths = Paths::all(companion, RegisterKind::Object).below(prefix.as_bytes());
        self.listings.walk_whole(context, companion, &paths, start, limit)
    }

    async fn put(
        &self,
        bucket: BucketId,
        key: &str,
        bytes: Bytes,
        attributes: Attributes,
        conditions: &WriteConditions,
    ) -> Result<()> {
        let (context, companion) = (self.context(), companion_of(bucket));
        let target = self.catalog.target(&context, &companion, key).await?;
        let body = NewBody {
            size: Some(bytes.len() as u64),
            bytes: stream::iter([Ok(bytes)]).boxed(),
            md5: None,
            compute: Vec::new(),
            expected: Box::new(|| Ok(Vec::new())),
        };
        Box::pin(self.writer.put_at(target, key, body, attributes, conditions)).await.map(drop)
    }

    /// An object and its bytes, from a quorum; none if it doesn't exist.
    async fn get(
        &self,
        companion: &str,
        key: &str,
        bytes_max: usize,
    ) -> Result<Option<(Arc<Object>, Bytes)>> {
        match self.bytes_of(companion, key.into(), bytes_max).await {
            Ok(found) => Ok(Some(found)),
            Err(Error::NoSuchKey | Error::NoSuchBucket) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An object of any bucket, and its bytes, from a quorum.
    ///
    /// # Errors
    /// [`Error::EntityTooLarge`] for an object of more than `bytes_max` bytes.
    pub(crate) async fn bytes_of(
        &self,
        bucket: &str,
        name: ObjectName<'_>,
        bytes_max: usize,
    ) -> Result<(Arc<Object>, Bytes)> {
        let (context, any) = (self.context(), ReadConditions::default());
        let reading = self.reader.get(&context, bucket, name, Selection::Whole, &any);
        let read = Box::pin(reading).await?;
        if read.object.size > bytes_max as u64 {
            let (size, maximum) = (read.object.size, bytes_max as u64);
            return Err(Error::EntityTooLarge { size, maximum });
        }
        let mut bytes =
            BytesMut::with_capacity(usize::try_from(read.object.size).unwrap_or_default());
        if let Some(mut body) = read.body {
            while let Some(chunk) = body.next().await {
                bytes.extend_from_slice(&chunk?);
            }
        }
        if bytes.len() as u64 != read.object.size {
            let message = "an object has another length than its entry says";
            return Err(martlet_protocol::Error::corrupt(message).into());
        }
        Ok((read.object, bytes.freeze()))
    }

    async fn delete(
        &self,
        bucket: BucketId,
        key: &str,
        conditions: &DeleteConditions,
    ) -> Result<()> {
        let (context, companion) = (self.context(), companion_of(bucket));
        match Box::pin(self.remover.delete(&context, &companion, key, conditions)).await {
            Ok(_)
            | Err(Error::PreconditionFailed(_) | Error::NoSuchKey | Error::ConditionalConflict) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns true if a bucket of this name holds records of another bucket's sets. Such buckets aren't
/// shown to clients.
pub fn is_companion(name: &str) -> bool {
    name.starts_with(COMPANION_PREFIX)
}

/// Id of the bucket whose companion has this name.
pub(crate) fn parent_id(companion: &str) -> Option<BucketId> {
    companion.strip_prefix(COMPANION_PREFIX)?.parse().ok()
}
