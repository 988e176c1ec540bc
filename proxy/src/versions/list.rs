//! Listings of versions in order of key, the latest version first.
//!
//! A page reads heads first, then the registers beside them. So a version that is set aside
//! meanwhile is found at least once; one found twice is recognized by its head.

use std::cmp::Ordering;

use bytes::Bytes;
use martlet_protocol::backend::{ListStart, RowKinds, RowSelection, Want};
use martlet_protocol::entry::{Bucket, Entry, Value};
use martlet_protocol::{Level, RegisterKey, RegisterKind, Shard, Version, VersionId, WriteId};
use tokio::time::Instant;

use super::beside::{run_of, version_of};
use super::operations::Versions;
use crate::api::{ListVersions, ListedVersion, VersionPage};
use crate::bucket::again_if_replaced;
use crate::context::RequestContext;
use crate::error::Result;
use crate::index::RegisterClient;
use crate::listing::{Listings, position_of, start_after};
use crate::merge::{folded, successor};
use crate::walk::{Paths, Walk, text};

/// Heads read at once.
const HEADS_MAX: usize = 1000;

/// An item of a run of heads, in order of key.
enum Item {
    /// A key and its current version.
    Head(Bytes, Entry),
    Folded(Bytes),
}

/// Remaining versions of the key in which a page begins.
#[derive(Default)]
struct Rest {
    /// Only versions below this position were not returned yet.
    below: Option<(u64, WriteId)>,
    /// The null version, whose register comes before the others.
    null: Option<(Version, Entry)>,
}

impl Rest {
    fn is_due(&self, version: Version) -> bool {
        self.below.is_none_or(|(position, write_id)| {
            let (at, id) = place(version);
            at < position || (at == position && id > write_id)
        })
    }
}

fn place(version: Version) -> (u64, WriteId) {
    (version.position, version.id.unwrap_or(NULL_PLACE))
}

/// Rank of the null version among those at one position: the last.
const NULL_PLACE: WriteId = WriteId([0xff; 16]);

/// A page under construction.
struct Filling<'a> {
    registers: &'a RegisterClient,
    context: &'a RequestContext,
    list: &'a ListVersions,
    /// The only shard to read; none for all.
    shard: Option<Shard>,
    level: Level,
    page: VersionPage,
    last: Option<(String, Option<VersionId>)>,
    /// True once the page has something to return.
    has_found: bool,
}

impl Filling<'_> {
    /// Returns true if the page is full, and sets its continuation.
    fn is_full(&mut self) -> bool {
        let full = self.page.versions.len() + self.page.prefixes.len() >= self.list.limit;
        if full {
            self.page.next.clone_from(&self.last);
        }
        full
    }

    /// Adds a version; returns false if the page is full.
    fn push(&mut self, key: &Bytes, entry: Entry, is_latest: bool) -> Result<bool> {
        if self.is_full() {
            return Ok(false);
        }
        let Some(version) = entry.value.version() else { return Ok(true) };
        let key = text(key.clone())?;
        let (position, write_id) = place(version);
        self.has_found = true;
        self.last = Some((key.clone(), Some(VersionId::Numbered { position, write_id })));
        let (object, modified_ms) = match entry.value {
            Value::Object(object) => (Some(object.clone()), object.modified_ms),
            Value::DeleteMarker(marker) => (None, marker.modified_ms),
            _ => return Ok(true),
        };
        let id = version.name();
        self.page.versions.push(ListedVersion { key, id, is_latest, object, modified_ms });
        Ok(true)
    }

    fn push_folded(&mut self, prefix: Bytes) -> Result<bool> {
        if self.is_full() {
            return Ok(false);
        }
        let prefix = text(prefix)?;
        self.has_found = true;
        self.last = Some((prefix.clone(), None));
        self.page.prefixes.push(prefix);
        Ok(true)
    }

    /// Adds the versions of one key: its head and those beside it. Returns false if the page is
    /// full.
    async fn key(
        &mut self,
        key: Bytes,
        head: Entry,
        beside: &mut Option<Beside<'_>>,
        mut rest: Rest,
    ) -> Result<bool> {
        let Some((held, _)) = version_of(Some(&head)) else { return Ok(true) };
        let mut null = rest.null.take().filter(|(null, _)| rest.is_due(*null));
        if rest.is_due(held) && !self.push(&key, head, true)? {
            return Ok(false);
        }
        let Some(beside) = beside else { return Ok(true) };
        if self.has_found {
            beside.walk.meter.has_found();
        }
        while let Some((version, entry)) = beside.next_of(&key).await? {
            // A copy of the head, or a version that a null head replaced.
            if version.name() == held.name() || !rest.is_due(version) {
                continue;
            }
            if version.id.is_none() {
                null = Some((version, entry));
                continue;
            }
            if let Some((_, entry)) = null.take_if(|(null, _)| null.position > version.position)
                && !self.push(&key, entry, false)?
            {
                return Ok(false);
            }
            if !self.push(&key, entry, false)? {
                return Ok(false);
            }
        }
        if let Some((position, write_id)) = beside.paused.take() {
            if let Some((_, entry)) = null.take_if(|(null, _)| null.position > position)
                && !self.push(&key, entry, false)?
            {
                return Ok(false);
            }
            let behind = VersionId::Numbered { position, write_id };
            self.page.next = Some((text(key)?, Some(behind)));
            return Ok(false);
        }
        match null {
            Some((_, entry)) => self.push(&key, entry, false),
            None => Ok(true),
        }
    }
}

/// Versions beside heads, in order of key.
struct Beside<'a> {
    walk: Walk<'a>,
    /// An entry of a later key, read ahead.
    ahead: Option<(Bytes, Entry)>,
    /// Place among the versions of a key at which the walk paused, after a long run of removed
    /// ones.
    paused: Option<(u64, WriteId)>,
}

impl Beside<'_> {
    /// The next version beside the head of `key`, without tombstones. Callers pass ascending keys.
    async fn next_of(&mut self, key: &Bytes) -> Result<Option<(Version, Entry)>> {
        loop {
            let (name, entry) = match self.ahead.take() {
                Some(ahead) => ahead,
                None => match self.walk.next().await? {
                    Some(met) => met,
                    None if self.goes_on(key) => continue,
                    None => return Ok(None),
                },
            };
            let of = RegisterKey::version_of(&name).map(|(of, _)| of);
            match of.map(|of| of.cmp(key)) {
                // Left over from a key without a head.
                None | Some(Ordering::Less) => {}
                Some(Ordering::Greater) => {
                    self.ahead = Some((name, entry));
                    return Ok(None);
                }
                Some(Ordering::Equal) => {
                    if let Some(version) = entry.value.version() {
                        return Ok(Some((version, entry)));
                    }
                }
            }
        }
    }

    /// Returns true if a walk that ended may still have versions of the key. Notes the place of a
    /// pause among its numbered versions; elsewhere the walk goes on.
    fn goes_on(&mut self, key: &Bytes) -> bool {
        let Some(paused) = self.walk.paused() else { return false };
        let version = match &paused {
            ListStart::After(name) => RegisterKey::version_of(name),
            ListStart::First | ListStart::At(_) => None,
        };
        match version {
            Some((of, VersionId::Numbered { position, write_id })) if of == key => {
                self.paused = Some((position, write_id));
                false
            }
            // The versions of the key are passed.
            Some((of, _)) if of > &key[..] => false,
            _ => {
                self.walk.meter.go_on();
                true
            }
        }
    }

    /// Skips the registers beside heads of keys below `key`.
    fn skip_to(&mut self, key: &Bytes) {
        if self.ahead.as_ref().is_some_and(|(name, _)| name[..] >= run(key)[..]) {
            return;
        }
        self.ahead = None;
        self.walk.skip_to(run(key));
    }
}

/// Name at which the registers beside a key's head begin.
fn run(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

/// Reads a run of heads and folded prefixes.
async fn heads(walk: &mut Walk<'_>, list: &ListVersions) -> Result<Vec<Item>> {
    let (prefix, delimiter) =
        (list.prefix.as_bytes(), list.delimiter.as_deref().unwrap_or_default().as_bytes());
    let mut items = Vec::new();
    let most = list.limit.saturating_add(1).min(HEADS_MAX);
    while items.len() < most
        && let Some((name, entry)) = walk.next().await?
    {
        let fold = folded(&name, prefix, delimiter).map(|fold| name.slice_ref(fold));
        match (fold, entry.value.version()) {
            (None, Some(_)) => items.push(Item::Head(name, entry)),
            (Some(fold), Some(_)) => {
                if let Some(next) = successor(&fold) {
                    walk.skip_to(next);
                }
                items.push(Item::Folded(fold));
            }
            (_, None) => continue,
        }
        walk.meter.has_found();
    }
    Ok(items)
}

/// Start of a page's heads.
fn start(list: &ListVersions) -> ListStart {
    let delimiter = list.delimiter.as_deref().unwrap_or_default();
    start_after(list.after_key.as_deref(), list.prefix.as_bytes(), delimiter.as_bytes())
}

impl Versions<'_> {
    /// Lists a page of the versions of a bucket's objects, in order of key, the latest first. In an
    /// unversioned bucket each object is a null version.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`](crate::Error::NoSuchBucket), or too few nodes replied.
    pub async fn list(self, bucket: &str, list: ListVersions) -> Result<VersionPage> {
        let (context, list) = (&*self.contexts.context(), &list);
        let (catalog, listings) = (self.catalog, self.listings);
        again_if_replaced(|| async move {
            let began = Instant::now();
            let found = catalog.bucket_with_versions(context, bucket).await?;
            let page = listings.version_page(context, &found, list, None).await?;
            if page.versions.is_empty() && page.prefixes.is_empty() {
                catalog.check_not_replaced(context, bucket, &found, began).await?;
            }
            Ok(page)
        })
        .await
    }
}

impl Listings {
    /// Lists a page of the versions in one shard of a bucket, or in all shards.
    pub(crate) async fn version_page(
        &self,
        context: &RequestContext,
        bucket: &Bucket,
        list: &ListVersions,
        shard: Option<Shard>,
    ) -> Result<VersionPage> {
        let (level, page) = (context.level(bucket), VersionPage::default());
        let registers = &self.registers;
        let (last, has_found) = (None, false);
        let mut filling = Filling { registers, context, list, shard, level, page, last, has_found };
        if list.limit > 0 && !list.prefix.contains('\0') {
            filling.fill(bucket).await?;
        }
        Ok(filling.page)
    }
}

impl<'a> Filling<'a> {
    /// Paths of a kind of registers that the page reads.
    fn paths(&self, bucket: &Bucket, kind: RegisterKind) -> Paths {
        let all = Paths::all(bucket, kind).below(self.list.prefix.as_bytes());
        match self.shard {
            Some(shard) => Paths { shards: vec![shard], ..all },
            None => all,
        }
    }

    async fn fill(&mut self, bucket: &Bucket) -> Result<()> {
        let list = self.list;
        if let (Some(key), Some(version)) = (&list.after_key, list.after_version)
            && !self.fill_rest(bucket, key, version).await?
        {
            return Ok(());
        }
        let paths = self.paths(bucket, RegisterKind::Object);
        let expected = list.limit.saturating_add(1);
        let mut walk =
            Walk::new(self.registers, self.context, &paths, start(list), expected, self.level)?;
        self.bind(&mut walk);
        walk.honour(self.context.consistency.read_after);
        loop {
            let items = heads(&mut walk, list).await?;
            let (paused, is_over) = (walk.paused(), items.is_empty());
            if !is_over && !self.fill_with(bucket, items).await? {
                return Ok(());
            }
            if let Some(paused) = paused {
                return self.pause(paused);
            }
            if is_over {
                return Ok(());
            }
        }
    }

    /// Selects the rows of a walk, and bounds it.
    fn bind(&self, walk: &mut Walk<'_>) {
        walk.selection = RowSelection { detail: self.list.detail, kinds: RowKinds::Live };
        walk.meter.pause_as_page();
        if self.has_found {
            walk.meter.has_found();
        }
    }

    /// Ends the page after a long run of keys without versions.
    fn pause(&mut self, paused: ListStart) -> Result<()> {
        let delimiter = self.list.delimiter.as_deref().unwrap_or_default();
        let (prefix, delimiter) = (self.list.prefix.as_bytes(), delimiter.as_bytes());
        let position = position_of(paused, prefix, delimiter)?.map(|position| (position, None));
        self.page.next = position.or_else(|| self.last.clone());
        Ok(())
    }

    /// Adds the versions of a key after a given one; returns false if the page is full.
    async fn fill_rest(&mut self, bucket: &Bucket, key: &str, after: VersionId) -> Result<bool> {
        let register = RegisterKey::object(bucket.id, bucket.index_shards, key);
        let head =
            self.registers.read(self.context, &register, Want::Entry, self.level).await?.entry;
        let Some((held, head)) = version_of(head.as_ref()) else { return Ok(true) };
        let null = RegisterKey::version(&register, VersionId::Null);
        let null = self.registers.read(self.context, &null, Want::Entry, self.level).await?.entry;
        let null = version_of(null.as_ref()).filter(|_| held.id.is_some());
        let below = match (after, null) {
            (VersionId::Numbered { position, write_id }, _) => (position, write_id),
            (VersionId::Null, Some((null, _))) => place(null),
            (VersionId::Null, None) if held.id.is_none() => place(held),
            // The null version is gone, and its position unknown.
            (VersionId::Null, None) => return Ok(true),
        };
        let (position, write_id) = below;
        let after = RegisterKey::version(&register, VersionId::Numbered { position, write_id });
        let paths = run_of(&register);
        let expected = self.list.limit.saturating_add(1);
        let start = ListStart::After(after.name);
        let mut walk =
            Walk::new(self.registers, self.context, &paths, start, expected, self.level)?;
        self.bind(&mut walk);
        let rest = Rest { below: Some(below), null: null.map(|(at, entry)| (at, entry.clone())) };
        let mut beside = Some(Beside { walk, ahead: None, paused: None });
        self.key(register.name.clone(), head.clone(), &mut beside, rest).await
    }

    /// Adds the versions of a run of heads; returns false if the page is full.
    async fn fill_with(&mut self, bucket: &Bucket, items: Vec<Item>) -> Result<bool> {
        let mut beside = self.beside(bucket, &items)?;
        for item in items {
            let there_is_room = match item {
                Item::Head(key, entry) => {
                    if let Some(beside) = &mut beside {
                        beside.skip_to(&key);
                    }
                    self.key(key, entry, &mut beside, Rest::default()).await?
                }
                Item::Folded(prefix) => self.push_folded(prefix)?,
            };
            if !there_is_room {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A walk over the registers beside these heads, started after the heads were read.
    fn beside(&self, bucket: &Bucket, items: &[Item]) -> Result<Option<Beside<'a>>> {
        let first = items.iter().find_map(|item| match item {
            Item::Head(key, _) => Some(key),
            Item::Folded(_) => None,
        });
        let Some(first) = first.filter(|_| bucket.versioning().state.keeps_versions()) else {
            return Ok(None);
        };
        let paths = self.paths(bucket, RegisterKind::Version);
        let expected = self.list.limit.saturating_add(1);
        let start = ListStart::At(run(first));
        let mut walk =
            Walk::new(self.registers, self.context, &paths, start, expected, self.level)?;
        self.bind(&mut walk);
        Ok(Some(Beside { walk, ahead: None, paused: None }))
    }
}
