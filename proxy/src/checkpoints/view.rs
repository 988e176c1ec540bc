//! Reads and listings of the view: of each set its newest generation, and what no rule covers.
//!
//! ```text
//! key ── outside of all sets ──────────────────────────▶ current version of the key
//!     ── in a set ── newest of the record (quorum) ──┐
//!     ── SET@N/… ─── record (quorum) ────────────────┴─▶ manifest ──▶ version of a key
//! ```
//!
//! Invariant: what isn't known from a quorum is an error, never an absence. Nothing but manifests is
//! cached here, and manifests never change.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::backend::ListStart;
use martlet_protocol::entry::{Bucket, ETag, Object, Value};
use martlet_protocol::{RegisterKind, VersionId};
use tokio::time::Instant;

use super::manifest::{Manifest, ManifestEntry};
use super::page::{Filling, Pushed, SetKeys};
use super::records::GenerationState;
use super::rules::{CheckpointRules, Place};
use super::set_store::{Newest, RECORDS, SetName, SetStore, companion_of};
use crate::api::{ListObjects, ObjectPage};
use crate::bucket::again_if_replaced;
use crate::context::RequestContext;
use crate::error::{Error, Result};
use crate::listing::{position_of, start_after};
use crate::merge::successor;
use crate::walk::{Paths, Walk, text};

/// Records that a listing reads at once.
const RECORDS_AT_ONCE: usize = 100;

/// Object that a key of the view stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewedObject {
    /// Key in the bucket.
    pub key: String,
    /// Version; none for the current one of a key outside of all sets.
    pub version: Option<VersionId>,
    /// Size and ETag of the version, as noted.
    noted: Option<(u64, ETag)>,
}

impl ViewedObject {
    fn of(manifest: &Manifest, entry: &ManifestEntry) -> Self {
        Self {
            key: manifest.key_of(entry),
            version: Some(entry.version.name()),
            noted: Some((entry.size, entry.etag)),
        }
    }

    /// Returns true if the object is the one that the view means.
    pub fn is(&self, object: &Object) -> bool {
        self.noted.is_none_or(|noted| noted == (object.size, object.etag))
    }
}

/// A bucket with rules, read for one request of the view.
pub(super) struct ViewedBucket {
    bucket: Arc<Bucket>,
    name: String,
    rules: Arc<CheckpointRules>,
    context: RequestContext,
    /// Start of the request, before the bucket was looked up.
    began: Instant,
}

impl ViewedBucket {
    /// Object that a key of the view stands for.
    async fn resolve(&self, sets: &SetStore, key: &str) -> Result<ViewedObject> {
        let (manifest, rest) = match self.rules.place(key) {
            Place::Outside => {
                return Ok(ViewedObject { key: key.to_owned(), version: None, noted: None });
            }
            Place::Set { folder, rest, .. } => {
                (sets.newest_manifest(self.set(folder)).await?, rest)
            }
            Place::Generation { set, number, rest, .. } => {
                (sets.manifest_numbered(self.set(&set), number).await?, rest)
            }
        };
        let manifest = manifest.ok_or(Error::NoSuchKey)?;
        let entry = manifest.find(rest).ok_or(Error::NoSuchKey)?;
        Ok(ViewedObject::of(&manifest, entry))
    }

    fn set<'a>(&'a self, set: &'a str) -> SetName<'a> {
        SetName::of(&self.bucket, &self.name, set)
    }
}

impl SetStore {
    /// A bucket and its rules.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`] for a bucket without rules: it has no view.
    pub(super) async fn viewed(&self, name: &str) -> Result<ViewedBucket> {
        let (context, began) = (self.context(), Instant::now());
        let bucket = self.catalog.bucket(&context, name).await?;
        let rules = CheckpointRules::of(&bucket)?.ok_or(Error::NoSuchBucket)?;
        Ok(ViewedBucket { bucket, name: name.to_owned(), rules, context, began })
    }

    /// Object that a key of the view of a bucket stands for.
    pub(super) async fn resolve(&self, bucket: &str, key: &str) -> Result<ViewedObject> {
        again_if_replaced(|| async move {
            let viewed = self.viewed(bucket).await?;
            let ViewedBucket { context, began, bucket: found, .. } = &viewed;
            match viewed.resolve(self, key).await {
                Err(error) => {
                    Err(self.catalog.check_absence(context, error, bucket, found, *began).await)
                }
                resolved => resolved,
            }
        })
        .await
    }

    async fn newest_manifest(&self, set: SetName<'_>) -> Result<Option<Arc<Manifest>>> {
        match self.newest(set.bucket, set.set).await? {
            Some(newest) => self.manifest(set, &newest.manifest).await.map(Some),
            None => Ok(None),
        }
    }

    /// Manifest of a committed generation; none if there is no such generation.
    async fn manifest_numbered(
        &self,
        set: SetName<'_>,
        number: u64,
    ) -> Result<Option<Arc<Manifest>>> {
        let Some((record, _)) = self.record(set.bucket, set.set).await? else { return Ok(None) };
        let generation = record.find(number);
        let committed = generation.filter(|it| it.state == GenerationState::Committed);
        match committed.and_then(|it| it.manifest.as_deref()) {
            Some(token) => self.manifest(set, token).await.map(Some),
            None => Ok(None),
        }
    }

    /// Lists a page of the view of a bucket.
    pub(super) async fn list(&self, bucket: &str, list: &ListObjects) -> Result<ObjectPage> {
        again_if_replaced(|| async move {
            let viewed = self.viewed(bucket).await?;
            let page = self.list_once(&viewed, list).await?;
            if page.objects.is_empty() && page.prefixes.is_empty() {
                let ViewedBucket { context, began, bucket: found, .. } = &viewed;
                self.catalog.check_not_replaced(context, bucket, found, *began).await?;
            }
            Ok(page)
        })
        .await
    }

    async fn list_once(&self, viewed: &ViewedBucket, list: &ListObjects) -> Result<ObjectPage> {
        if list.limit == 0 {
            return Ok(ObjectPage::default());
        }
        let (manifest, folder) = match viewed.rules.place(&list.prefix) {
            Place::Outside => return self.list_merged(viewed, list).await,
            Place::Set { folder, .. } => (self.newest_manifest(viewed.set(folder)).await?, folder),
            Place::Generation { set, number, folder, .. } => {
                (self.manifest_numbered(viewed.set(&set), number).await?, folder)
            }
        };
        let mut page = Filling::new(list);
        if let Some(manifest) = manifest {
            let mut keys = SetKeys { manifest, folder: folder.to_owned(), at: 0 };
            keys.skip_to(&page.start());
            while let Some(key) = keys.key().filter(|key| key.starts_with(&list.prefix)) {
                let object = keys.take();
                match page.push(key, object) {
                    Pushed::Full => break,
                    Pushed::Key => {}
                    Pushed::Folded(next) => keys.skip_to(&next),
                }
            }
        }
        Ok(page.done())
    }

    /// Lists keys outside of all sets, merged with those of sets.
    async fn list_merged(&self, viewed: &ViewedBucket, list: &ListObjects) -> Result<ObjectPage> {
        let mut page = Filling::new(list);
        let mut outside = Outside::new(self, viewed, list)?;
        let mut sets = Sets::new(self, viewed, list).await?;
        sets.skip_to(page.start());
        loop {
            let first = outside.peek().await?;
            let below = first.as_ref().map(|it| it.0.clone());
            let (key, object) = match (sets.peek(below.as_deref()).await?, first) {
                (Some(key), _) => {
                    if let Some(next) = page.fold_of(&key) {
                        match page.push_folded(next) {
                            Pushed::Folded(next) => {
                                sets.skip_to(next.clone());
                                outside.skip_to(next);
                                continue;
                            }
                            _ => break,
                        }
                    }
                    match sets.take(&key).await? {
                        Some(object) => (key, Some(object)),
                        None => continue,
                    }
                }
                (None, Some((key, object))) => {
                    outside.take();
                    (key, object)
                }
                (None, None) => break,
            };
            let Some(object) = object else {
                page.pause(outside.position.take().unwrap_or(key));
                break;
            };
            match page.push(key, object) {
                Pushed::Full => break,
                Pushed::Key => {}
                Pushed::Folded(next) => {
                    sets.skip_to(next.clone());
                    outside.skip_to(next);
                }
            }
        }
        Ok(page.done())
    }
}

/// Keys of the bucket that no rule covers, in order.
struct Outside<'a> {
    walk: Walk<'a>,
    rules: &'a CheckpointRules,
    prefix: &'a str,
    delimiter: &'a str,
    /// A key that was read ahead; no object if the walk has passed very many deleted ones.
    ahead: Option<(String, Option<Box<Object>>)>,
    /// Position of the next page, once the walk has paused.
    position: Option<String>,
}

impl<'a> Outside<'a> {
    fn new(sets: &'a SetStore, viewed: &'a ViewedBucket, list: &'a ListObjects) -> Result<Self> {
        let delimiter = list.delimiter.as_deref().unwrap_or_default();
        let paths = Paths::all(&viewed.bucket, RegisterKind::Object).below(list.prefix.as_bytes());
        let start =
            start_after(list.after.as_deref(), list.prefix.as_bytes(), delimiter.as_bytes());
        let ViewedBucket { bucket, rules, context, .. } = viewed;
        let walk = sets.listings.walk(context, bucket, &paths, start, list.limit)?;
        Ok(Self { walk, rules, prefix: &list.prefix, delimiter, ahead: None, position: None })
    }

    async fn peek(&mut self) -> Result<Option<(String, Option<Box<Object>>)>> {
        while self.ahead.is_none() {
            let Some((name, entry)) = self.walk.next().await? else {
                let Some(paused) = self.walk.paused() else { return Ok(None) };
                // Between folders of sets no position can be named, so the walk goes on.
                let ListStart::After(name) = paused.clone() else {
                    self.walk.meter.go_on();
                    continue;
                };
                self.position =
                    position_of(paused, self.prefix.as_bytes(), self.delimiter.as_bytes())?;
                self.ahead = Some((text(name)?, None));
                break;
            };
            let key = text(name)?;
            let covered = match self.rules.place(&key) {
                Place::Outside => None,
                Place::Set { folder, .. } | Place::Generation { folder, .. } => Some(folder),
            };
            // All of a folder is shown by its set, or not at all.
            if let Some(folder) = covered {
                let Some(next) = successor(folder.as_bytes()) else { return Ok(None) };
                self.walk.skip_to(next);
                continue;
            }
            if let Value::Object(object) = entry.value {
                self.ahead = Some((key, Some(object)));
            }
        }
        Ok(self.ahead.clone())
    }

    fn take(&mut self) {
        self.ahead = None;
    }

    fn skip_to(&mut self, name: Bytes) {
        if self.ahead.as_ref().is_some_and(|(key, _)| key.as_bytes() >= &name[..]) {
            return;
        }
        self.ahead = None;
        self.walk.skip_to(name);
    }
}

/// Keys of all sets below a prefix, in order.
struct Sets<'a> {
    store: &'a SetStore,
    viewed: &'a ViewedBucket,
    rules: &'a CheckpointRules,
    /// None if the bucket has no sets yet.
    records: Option<Walk<'a>>,
    /// Sets read ahead, with their newest generations.
    ahead: VecDeque<(String, Newest)>,
    /// Keys of the first set, once they are needed.
    keys: Option<SetKeys>,
    start: Bytes,
}

impl<'a> Sets<'a> {
    async fn new(sets: &'a SetStore, viewed: &'a ViewedBucket, list: &ListObjects) -> Result<Self> {
        let (bucket, context) = (viewed.bucket.id, &viewed.context);
        let companion = match sets.catalog.bucket(context, &companion_of(bucket)).await {
            Ok(companion) => Some(companion),
            Err(Error::NoSuchBucket) => None,
            Err(error) => return Err(error),
        };
        let walk = |companion: Arc<Bucket>| {
            sets.records(context, &companion, &list.prefix, ListStart::First, RECORDS_AT_ONCE)
        };
        let records = companion.map(walk).transpose()?;
        let (rules, ahead, keys) = (&*viewed.rules, VecDeque::new(), None);
        Ok(Self { store: sets, viewed, rules, records, ahead, keys, start: Bytes::new() })
    }

    /// Skips all keys below `name`.
    fn skip_to(&mut self, name: Bytes) {
        while let Some((set, _)) = self.ahead.front() {
            // Some key of the set may follow.
            if successor(set.as_bytes()).is_none_or(|end| end > name) {
                break;
            }
            self.ahead.pop_front();
            self.keys = None;
        }
        if let Some(keys) = &mut self.keys {
            keys.skip_to(&name);
        }
        if self.ahead.is_empty()
            && let Some(records) = &mut self.records
        {
            // The set that contains the name has a lower one.
            let set = containing(self.rules, &name).unwrap_or_else(|| name.clone());
            records.skip_to([RECORDS.as_bytes(), &set[..]].concat().into());
        }
        self.start = name;
    }

    /// The lowest key that may follow, if it is below `bound`: a key, or the name of a set whose
    /// keys were not read yet.
    async fn peek(&mut self, bound: Option<&str>) -> Result<Option<String>> {
        loop {
            self.read_ahead().await?;
            let Some((set, _)) = self.ahead.front() else { return Ok(None) };
            let key = match &self.keys {
                None => Some(set.clone()),
                Some(keys) => keys.key(),
            };
            match key {
                Some(key) if bound.is_none_or(|bound| key.as_str() < bound) => {
                    return Ok(Some(key));
                }
                Some(_) => return Ok(None),
                None => {
                    self.ahead.pop_front();
                    self.keys = None;
                }
            }
        }
    }

    /// The object of the key that [`Sets::peek`] returned; none if it was the name of a set, whose
    /// keys are read now.
    async fn take(&mut self, key: &str) -> Result<Option<Box<Object>>> {
        if let Some(keys) = &mut self.keys {
            return Ok(Some(keys.take()));
        }
        let Some((set, newest)) = self.ahead.front().filter(|(set, _)| set == key) else {
            return Ok(None);
        };
        let manifest = self.store.manifest(self.viewed.set(set), &newest.manifest).await?;
        let mut keys = SetKeys { manifest, folder: set.clone(), at: 0 };
        keys.skip_to(&self.start);
        self.keys = Some(keys);
        Ok(None)
    }

    async fn read_ahead(&mut self) -> Result<()> {
        let Some(records) = &mut self.records else { return Ok(()) };
        while self.ahead.is_empty() {
            let Some((name, entry)) = records.next().await? else {
                self.records = None;
                return Ok(());
            };
            let Value::Object(object) = entry.value else { continue };
            let set = text(name.slice(RECORDS.len()..))?;
            if let Some(newest) = Newest::of(&object)
                && self.rules.of_set(&set).is_some()
            {
                self.ahead.push_back((set, newest));
            }
        }
        Ok(())
    }
}

/// Name of the set that contains a key.
fn containing(rules: &CheckpointRules, name: &[u8]) -> Option<Bytes> {
    // A bound of a listing may end in the middle of a character.
    let key = match std::str::from_utf8(name) {
        Ok(key) => key,
        Err(error) => std::str::from_utf8(&name[..error.valid_up_to()]).ok()?,
    };
    match rules.place(key) {
        Place::Set { folder, .. } => Some(Bytes::copy_from_slice(folder.as_bytes())),
        _ => None,
    }
}
