//! Registers that a walk visits, and the mapping of their names.

use bytes::Bytes;
use martlet_protocol::entry::Bucket;
use martlet_protocol::key::shard_of;
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::{BucketId, Error, RegisterKey, RegisterKind, Result, Shard};

/// Bytes after the key in an upload's register name: NUL and the upload id.
const UPLOAD_TAIL_BYTES: usize = 17;

/// Registers that a walk visits.
#[derive(Clone)]
pub(crate) struct Paths {
    pub(crate) bucket: BucketId,
    pub(crate) shards: Vec<Shard>,
    pub(crate) kind: RegisterKind,
    pub(crate) prefix: Bytes,
    /// Delimiter. The reader skips the names that share an object's bytes up to the first delimiter
    /// after the prefix, so devices may leave these names out.
    pub(crate) fold: Option<Bytes>,
}

impl Paths {
    /// All registers of a kind in a bucket.
    pub(crate) fn all(bucket: &Bucket, kind: RegisterKind) -> Self {
        let shards = (0..bucket.index_shards).map(Shard).collect();
        Self { bucket: bucket.id, shards, kind, prefix: Bytes::new(), fold: None }
    }

    /// Buckets with a name prefix.
    pub(crate) fn root(prefix: &str) -> Self {
        let shards = (0..INDEX_SHARDS_DEFAULT).map(Shard).collect();
        let prefix = Bytes::copy_from_slice(prefix.as_bytes());
        Self { bucket: BucketId::ROOT, shards, kind: RegisterKind::Object, prefix, fold: None }
    }

    /// Account documents with a name prefix.
    pub(crate) fn accounts(prefix: &str) -> Self {
        Self { kind: RegisterKind::Account, ..Self::root(prefix) }
    }

    /// Restricts the paths to a prefix.
    pub(crate) fn below(mut self, prefix: &[u8]) -> Self {
        self.prefix = Bytes::copy_from_slice(prefix);
        self
    }

    /// The register of a name. The paths must be of one shard or of all.
    pub(super) fn register(&self, name: Bytes) -> RegisterKey {
        let shard = match (self.shards.as_slice(), self.kind) {
            ([shard], _) => *shard,
            (all, RegisterKind::Upload) => {
                let key = &name[..name.len().saturating_sub(UPLOAD_TAIL_BYTES)];
                shard_of(key, count(all))
            }
            (all, RegisterKind::Version) => {
                let key = RegisterKey::version_of(&name).map_or(&name[..], |(key, _)| key);
                shard_of(key, count(all))
            }
            (all, RegisterKind::Object | RegisterKind::Part | RegisterKind::Account) => {
                shard_of(&name, count(all))
            }
        };
        RegisterKey { bucket: self.bucket, shard, kind: self.kind, name }
    }
}

fn count(shards: &[Shard]) -> u16 {
    u16::try_from(shards.len()).expect("shards are numbered by 16 bits")
}

/// A name as text; fails unless it is UTF-8.
pub(crate) fn text(name: Bytes) -> Result<String> {
    String::from_utf8(name.into())
        .map_err(|error| Error::corrupt("a name in the index is not UTF-8").with_source(error))
}

#[cfg(test)]
mod tests {
    use martlet_protocol::{Level, PolicyId, UploadId, VersionId};

    use super::*;

    #[test]
    fn a_name_leads_back_to_its_register() {
        let bucket = Bucket {
            id: BucketId([1; 16]),
            created_ms: 0,
            generation: 1,
            state: martlet_protocol::entry::BucketState::Open,
            index_shards: 32,
            policy: PolicyId(0),
            owner: "me".into(),
            consistency: Level::Available,
            settings: martlet_protocol::Settings::default(),
        };
        for key in ["a", "b/c", "\u{1}", "a longer key with spaces"] {
            let object = RegisterKey::object(bucket.id, 32, key);
            let paths = Paths::all(&bucket, RegisterKind::Object);
            assert_eq!(paths.register(object.name.clone()), object);
            let upload = RegisterKey::upload(bucket.id, 32, key, UploadId([0; 16]));
            let paths = Paths::all(&bucket, RegisterKind::Upload);
            assert_eq!(paths.register(upload.name.clone()), upload);
            let version = RegisterKey::version(&object, VersionId::Null);
            let paths = Paths::all(&bucket, RegisterKind::Version);
            assert_eq!(paths.register(version.name.clone()), version);
        }
        let root = RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, "name");
        assert_eq!(Paths::root("").register(root.name.clone()), root);
        let key = RegisterKey::account("key/AKID");
        assert_eq!(Paths::accounts("key/").register(key.name.clone()), key);
        assert_ne!(key, RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, "key/AKID"));
    }
}
