//! Manifests: the objects of a generation. Written once under a random token, never changed.

use std::collections::HashMap;
use std::sync::Arc;

use martlet_protocol::Version;
use martlet_protocol::entry::ETag;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Maximum number of objects of a generation.
pub(crate) const OBJECTS_MAX: usize = 100_000;
/// Maximum bytes of names of a generation.
pub(crate) const NAME_BYTES_MAX: usize = 32 << 20;
/// Maximum bytes of an encoded manifest.
pub(crate) const ENCODED_BYTES_MAX: usize = 64 << 20;
/// Maximum number of objects in the manifests that a process caches; about 64 MiB.
const CACHED_OBJECTS_MAX: usize = 400_000;
/// Weight of a manifest without objects.
const MANIFEST_WEIGHT: usize = 16;
/// Format version.
const VERSION: u8 = 1;

/// An object of a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ManifestEntry {
    /// Name below the folder.
    pub(crate) rest: String,
    pub(crate) version: Version,
    pub(crate) size: u64,
    pub(crate) etag: ETag,
    pub(crate) modified_ms: u64,
}

/// Objects of a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Name of the set.
    pub(crate) set: String,
    /// Folder in which the objects lie; another than the set's if they were published under another
    /// name.
    pub(crate) folder: String,
    /// The objects, in order of name.
    pub(crate) entries: Vec<ManifestEntry>,
}

impl Manifest {
    /// The object of a name below the folder.
    pub(crate) fn find(&self, rest: &str) -> Option<&ManifestEntry> {
        let at = self.entries.binary_search_by(|entry| entry.rest.as_str().cmp(rest)).ok()?;
        self.entries.get(at)
    }

    /// Key of an object in the bucket.
    pub(crate) fn key_of(&self, entry: &ManifestEntry) -> String {
        format!("{}{}", self.folder, entry.rest)
    }

    /// Bytes of all objects together.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.size))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![VERSION]).expect("a manifest in memory can be encoded")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let decoded = match bytes.split_first() {
            Some((&VERSION, rest)) => postcard::from_bytes(rest).ok(),
            _ => None,
        };
        decoded.ok_or_else(|| {
            let message = "a checkpoint's manifest can't be decoded";
            Error::Backend(martlet_protocol::Error::corrupt(message))
        })
    }
}

/// Cached manifests by token. They never change, so none is ever outdated.
#[derive(Default)]
pub(crate) struct ManifestCache(Mutex<CachedManifests>);

#[derive(Default)]
struct CachedManifests {
    by_token: HashMap<String, Arc<Manifest>>,
    weight: usize,
}

fn weight(manifest: &Manifest) -> usize {
    manifest.entries.len() + MANIFEST_WEIGHT
}

impl ManifestCache {
    pub(crate) fn get(&self, token: &str) -> Option<Arc<Manifest>> {
        self.0.lock().by_token.get(token).cloned()
    }

    /// Caches a manifest. All others are dropped if there is no room beside them.
    pub(crate) fn put(&self, token: &str, manifest: Arc<Manifest>) {
        let added = weight(&manifest);
        if added > CACHED_OBJECTS_MAX {
            return;
        }
        let mut cached = self.0.lock();
        let mut dropped = HashMap::new();
        if cached.weight + added > CACHED_OBJECTS_MAX {
            dropped = std::mem::take(&mut cached.by_token);
            cached.weight = 0;
        }
        if cached.by_token.insert(token.to_owned(), manifest).is_none() {
            cached.weight += added;
        }
        drop(cached);
        // Freed without the lock.
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::WriteId;

    use super::*;

    fn manifest(objects: usize) -> Manifest {
        let entry = |at: usize| ManifestEntry {
            rest: format!("{at:06}"),
            version: Version { position: 7, id: Some(WriteId([3; 16])) },
            size: 10,
            etag: ETag::Md5([1; 16]),
            modified_ms: 5,
        };
        Manifest {
            set: "s/".into(),
            folder: "t/".into(),
            entries: (0..objects).map(entry).collect(),
        }
    }

    #[test]
    fn manifests_decode_to_what_was_encoded() {
        let manifest = manifest(5);
        assert_eq!(Manifest::decode(&manifest.encode()).unwrap(), manifest);
        for bad in [&b""[..], b"\x02", b"\x01\xff\xff\xff\xff\xff\xff"] {
            assert!(Manifest::decode(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn objects_are_found_by_name() {
        let manifest = manifest(5);
        let found = manifest.find("000003").unwrap();
        assert_eq!(manifest.key_of(found), "t/000003");
        assert!(manifest.find("000009").is_none() && manifest.find("").is_none());
        assert_eq!(manifest.bytes(), 50);
    }

    #[test]
    fn the_cache_is_bounded() {
        let cache = ManifestCache::default();
        let large = Arc::new(manifest(CACHED_OBJECTS_MAX / 4));
        for token in ["a", "b", "c", "d", "e"] {
            cache.put(token, large.clone());
            cache.put(token, large.clone());
            let cached = cache.0.lock();
            let sum: usize = cached.by_token.values().map(|it| weight(it)).sum();
            assert!(cached.weight == sum && sum <= CACHED_OBJECTS_MAX);
        }
        assert!(cache.get("e").is_some() && cache.get("a").is_none());
    }
}
