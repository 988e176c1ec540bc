//! A page of the view under construction, and the keys of one generation.

use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::backend::ListStart;
use martlet_protocol::entry::{Attributes, Body, Object};

use super::manifest::{Manifest, ManifestEntry};
use crate::api::{ListObjects, ObjectPage};
use crate::listing::start_after;
use crate::merge::{folded, successor};

/// Result of adding a key to a page.
pub(super) enum Pushed {
    Key,
    /// The key was folded; go on at this name.
    Folded(Bytes),
    /// The page is full, or no further name exists.
    Full,
}

/// A page under construction.
pub(super) struct Filling<'a> {
    list: &'a ListObjects,
    page: ObjectPage,
}

impl<'a> Filling<'a> {
    pub(super) fn new(list: &'a ListObjects) -> Self {
        Self { list, page: ObjectPage::default() }
    }

    fn delimiter(&self) -> &'a [u8] {
        self.list.delimiter.as_deref().unwrap_or_default().as_bytes()
    }

    /// Lowest name that the page may contain.
    pub(super) fn start(&self) -> Bytes {
        let prefix = Bytes::copy_from_slice(self.list.prefix.as_bytes());
        let start = match start_after(self.list.after.as_deref(), &prefix, self.delimiter()) {
            ListStart::First => return prefix,
            ListStart::At(name) => name,
            ListStart::After(name) => [&name[..], &[0]].concat().into(),
        };
        start.max(prefix)
    }

    pub(super) fn fold_of(&self, key: &str) -> Option<String> {
        let fold = folded(key.as_bytes(), self.list.prefix.as_bytes(), self.delimiter())?;
        Some(key[..fold.len()].to_owned())
    }

    fn is_full(&mut self) -> bool {
        let is_full = self.page.objects.len() + self.page.prefixes.len() >= self.list.limit;
        if is_full {
            let key = self.page.objects.last().map(|(key, _)| key);
            self.page.next = key.max(self.page.prefixes.last()).cloned();
        }
        is_full
    }

    pub(super) fn push(&mut self, key: String, object: Box<Object>) -> Pushed {
        if let Some(fold) = self.fold_of(&key) {
            return self.push_folded(fold);
        }
        if self.is_full() {
            return Pushed::Full;
        }
        self.page.objects.push((key, object));
        Pushed::Key
    }

    pub(super) fn push_folded(&mut self, fold: String) -> Pushed {
        if self.is_full() {
            return Pushed::Full;
        }
        let next = successor(fold.as_bytes());
        self.page.prefixes.push(fold);
        next.map_or(Pushed::Full, Pushed::Folded)
    }

    /// Ends the page at a name up to which nothing more is to be listed.
    pub(super) fn pause(&mut self, name: String) {
        self.page.next = Some(name);
    }

    pub(super) fn done(self) -> ObjectPage {
        self.page
    }
}

/// Keys of one generation, in order.
pub(super) struct SetKeys {
    pub(super) manifest: Arc<Manifest>,
    /// Folder under which they are listed.
    pub(super) folder: String,
    pub(super) at: usize,
}

impl SetKeys {
    pub(super) fn skip_to(&mut self, name: &[u8]) {
        let entries = &self.manifest.entries;
        let folder = self.folder.as_bytes();
        let below = |entry: &ManifestEntry| match name.strip_prefix(folder) {
            Some(rest) => entry.rest.as_bytes() < rest,
            None => folder < name,
        };
        self.at = self.at.max(entries.partition_point(below));
    }

    pub(super) fn key(&self) -> Option<String> {
        let entry = self.manifest.entries.get(self.at)?;
        Some(format!("{}{}", self.folder, entry.rest))
    }

    /// The object of the next key, which must exist.
    pub(super) fn take(&mut self) -> Box<Object> {
        let entry = &self.manifest.entries[self.at];
        self.at += 1;
        object_of(entry)
    }
}

/// An object as listings show it.
fn object_of(entry: &ManifestEntry) -> Box<Object> {
    Box::new(Object {
        size: entry.size,
        etag: entry.etag,
        modified_ms: entry.modified_ms,
        attributes: Attributes::default(),
        checksums: Vec::new(),
        upload: None,
        body: Body::Empty,
        version: Some(entry.version),
    })
}
