//! Manifests: the objects of a generation. Written once under a random token, never changed.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
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

    /// Name of an object below another folder; none if the object isn't there.
    fn name_below<'a>(&self, folder: &str, entry: &'a ManifestEntry) -> Option<Cow<'a, str>> {
        if self.folder == folder {
            return Some(Cow::Borrowed(&entry.rest));
        }
        Some(Cow::Owned(self.key_of(entry).strip_prefix(folder)?.to_owned()))
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

/// Versions of one manifest that other generations need. Its memory is that of the manifest's entries, however many
/// the others have.
pub(crate) struct NeededVersions<'a> {
    manifest: &'a Manifest,
    /// Latest other generation that needs a version, by the position of its entry.
    by: Vec<Option<u64>>,
}

impl<'a> NeededVersions<'a> {
    pub(crate) fn new(manifest: &'a Manifest) -> Self {
        Self { manifest, by: vec![None; manifest.entries.len()] }
    }

    /// Notes the versions that another generation needs. Both manifests are in order of key.
    pub(crate) fn add(&mut self, number: u64, other: &Manifest) {
        let mut own = self.manifest.entries.iter().zip(&mut self.by).peekable();
        for entry in &other.entries {
            let Some(rest) = other.name_below(&self.manifest.folder, entry) else { continue };
            while own.next_if(|(it, _)| it.rest.as_str() < &*rest).is_some() {}
            let Some((it, by)) = own.peek_mut() else { return };
            if it.rest == *rest && it.version.name() == entry.version.name() {
                **by = (**by).max(Some(number));
            }
        }
    }

    /// Latest generation that needs each version, in the order of the entries.
    pub(crate) fn into_inner(self) -> Vec<Option<u64>> {
        self.by
    }
}

/// Cached manifests by token. They never change, so none is ever outdated.
#[derive(Default)]
pub(crate) struct ManifestCache(Mutex<CachedManifests>);

#[derive(Default)]
struct CachedManifests {
    /// Manifests, each with the number of its last use.
    by_token: HashMap<String, (u64, Arc<Manifest>)>,
    /// Tokens in order of their last use.
    by_use: BTreeMap<u64, String>,
    uses: u64,
    weight: usize,
}

impl CachedManifests {
    fn take(&mut self, token: &str) -> Option<Arc<Manifest>> {
        let (used, manifest) = self.by_token.remove(token)?;
        self.by_use.remove(&used);
        self.weight -= weight(&manifest);
        Some(manifest)
    }

    fn put(&mut self, token: &str, manifest: Arc<Manifest>) {
        self.uses += 1;
        self.weight += weight(&manifest);
        self.by_use.insert(self.uses, token.to_owned());
        self.by_token.insert(token.to_owned(), (self.uses, manifest));
    }
}

fn weight(manifest: &Manifest) -> usize {
    manifest.entries.len() + MANIFEST_WEIGHT
}

impl ManifestCache {
    pub(crate) fn get(&self, token: &str) -> Option<Arc<Manifest>> {
        let mut cached = self.0.lock();
        let manifest = cached.take(token)?;
        cached.put(token, manifest.clone());
        Some(manifest)
    }

    /// Caches a manifest. Those that were not used for longest make place.
    pub(crate) fn put(&self, token: &str, manifest: Arc<Manifest>) {
        let added = weight(&manifest);
        if added > CACHED_OBJECTS_MAX {
            return;
        }
        let mut cached = self.0.lock();
        let mut dropped: Vec<_> = cached.take(token).into_iter().collect();
        while cached.weight + added > CACHED_OBJECTS_MAX
            && let Some((_, oldest)) = cached.by_use.pop_first()
        {
            dropped.extend(cached.take(&oldest));
        }
        cached.put(token, manifest);
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

    fn needed(removed: &Manifest, others: &[(u64, Manifest)]) -> Vec<Option<u64>> {
        let mut needed = NeededVersions::new(removed);
        for (number, other) in others {
            needed.add(*number, other);
        }
        needed.into_inner()
    }

    #[test]
    fn needed_versions_are_those_of_equal_keys_and_versions() {
        let removed = manifest(5);
        let version = |position| Version { position, id: Some(WriteId([4; 16])) };
        let mut newer = manifest(5);
        newer.entries[2].version = version(8);
        let mut older = manifest(5);
        (older.entries[0].version, older.entries[1].version) = (version(8), version(8));
        older.entries.remove(4);
        let found = needed(&removed, &[(7, newer.clone()), (3, older.clone())]);
        assert_eq!(found, [Some(7), Some(7), Some(3), Some(7), Some(7)]);
        assert_eq!(needed(&removed, &[(3, older), (7, newer)]), found, "in any order");
        assert_eq!(needed(&removed, &[]), [None; 5]);
        let null = |position| Version { position, id: None };
        let (mut first, mut second) = (manifest(1), manifest(1));
        (first.entries[0].version, second.entries[0].version) = (null(1), null(2));
        assert_eq!(needed(&first, &[(1, second)]), [Some(1)], "null versions have one name");
    }

    /// A set may be published from a folder above, below or beside that of another generation.
    #[test]
    fn needed_versions_are_found_in_other_folders() {
        let mut removed = manifest(3);
        removed.entries[1].rest = "a/000001".into();
        removed.entries.sort_by(|one, another| one.rest.cmp(&another.rest));
        let mut below = manifest(1);
        (below.folder, below.entries[0].rest) = ("t/a/".into(), "000001".into());
        assert_eq!(needed(&removed, &[(2, below.clone())]), [None, None, Some(2)]);
        assert_eq!(needed(&below, &[(2, removed.clone())]), [Some(2)]);
        below.folder = "u/a/".into();
        assert_eq!(needed(&removed, &[(2, below.clone())]), [None; 3]);
        assert_eq!(needed(&below, &[(2, removed)]), [None]);
    }

    #[test]
    fn the_cache_is_bounded() {
        let cache = ManifestCache::default();
        let large = Arc::new(manifest(CACHED_OBJECTS_MAX / 4));
        for token in ["a", "b", "c", "d", "e"] {
            cache.put(token, large.clone());
            cache.put(token, large.clone());
            let cached = cache.0.lock();
            let sum: usize = cached.by_token.values().map(|(_, it)| weight(it)).sum();
            assert!(cached.weight == sum && sum <= CACHED_OBJECTS_MAX);
            assert_eq!(cached.by_token.len(), cached.by_use.len());
        }
        assert!(cache.get("e").is_some() && cache.get("a").is_none());
    }

    /// Manifests of one tenant that fill the cache leave those that others use.
    #[test]
    fn large_manifests_replace_what_is_used_least() {
        let cache = ManifestCache::default();
        cache.put("small", Arc::new(manifest(3)));
        let large = Arc::new(manifest(CACHED_OBJECTS_MAX / 4));
        for token in ["a", "b", "c", "d", "e"] {
            cache.put(token, large.clone());
            assert!(cache.get("small").is_some(), "{token}");
        }
        assert!(cache.get("b").is_none() && cache.get("c").is_some());
    }
}
