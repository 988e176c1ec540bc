//! Requests of clients and operators on checkpoint sets.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use martlet_protocol::backend::{Detail, ListStart, RowKinds, RowSelection};
use martlet_protocol::entry::{Bucket, Value};
use martlet_protocol::{RegisterKind, Setting, Settings, Versioning, VersioningSetting};

use super::commit::{Committer, entry_of};
use super::manifest::{Manifest, ManifestEntry, OBJECTS_MAX};
use super::records::{EXPLICIT, Generation, Noted, SetRecord, Withdrawal, WithdrawalCause};
use super::rules::{CheckpointRules, Place};
use super::set_store::{RECORDS, SetName, companion_of};
use super::view::ViewedObject;
use crate::api::{ListObjects, NewBucket, ObjectPage};
use crate::bucket::Buckets;
use crate::checkpoint_outcome::CheckpointOutcome;
use crate::error::{Error, Result};
use crate::walk::{Bound, Paths, text};

/// Owner of companion buckets: root, which has no quota.
const OWNER: &str = "root";
/// Objects below a folder that an explicit commit goes through; more of them were not named.
const SEEN_MAX: usize = 1_000_000;
/// Differences that an error names.
const DIFFERENCES_MAX: usize = 20;
/// Longest hold, in milliseconds.
const HOLD_MS_MAX: u64 = 7 * 24 * 3600 * 1000;

/// An object that a client names for a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedObject {
    /// Its key.
    pub key: String,
    /// Its ETag, with or without quotes.
    pub etag: String,
    /// Its size in bytes.
    pub size: u64,
}

/// A commit of exactly these objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCommit {
    /// Folder that holds the objects, with its last slash.
    pub folder: String,
    /// Name of the set, if it is another than the folder's.
    pub published_as: Option<String>,
    /// The objects.
    pub objects: Vec<NamedObject>,
}

/// A set, and its generations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetState {
    /// Name of the set: its folder.
    pub name: String,
    /// Its generations, in order of number.
    pub generations: Vec<Generation>,
}

/// Sets of a bucket: at most `limit`, whose names begin with `prefix` and follow `after`.
#[derive(Clone, Copy)]
pub(super) struct SetRange<'a> {
    pub(super) prefix: &'a str,
    pub(super) after: Option<&'a str>,
    pub(super) limit: usize,
}

/// Checkpoint sets of a store.
#[derive(Clone, Copy)]
pub struct Checkpoints<'a> {
    pub(crate) committer: &'a Committer,
    pub(crate) buckets: Buckets<'a>,
}

impl Checkpoints<'_> {
    /// The document of a bucket's rules, read from its register; none if it has none.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn rules(self, bucket: &str) -> Result<Option<Vec<u8>>> {
        self.buckets.setting(bucket, Setting::Checkpoints).await
    }

    /// Sets the rules of a bucket. They apply to writes that begin after
    /// [`bucket_cache_ms`](crate::StoreOptions::bucket_cache_ms).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] names what is wrong with the document;
    /// [`Error::InvalidBucketState`] unless versioning is enabled; [`Error::NoSuchBucket`].
    pub async fn set_rules(self, bucket: &str, document: Vec<u8>) -> Result<()> {
        CheckpointRules::parse(&document)?;
        let context = self.committer.sets.context();
        let parent = self.committer.sets.catalog.bucket(&context, bucket).await?;
        self.create_companion(&parent, bucket).await?;
        let set = |settings: &mut Settings| {
            let versioning = VersioningSetting::of(settings.get(Setting::Versioning));
            if versioning.state != Versioning::Enabled {
                return Err(Error::InvalidBucketState(
                    "Checkpoint rules need versioning: enable it on the bucket first. Writes to a \
                     versioned bucket need a quorum, and the versions of kept generations count in \
                     quotas"
                        .into(),
                ));
            }
            Ok(settings.set(Setting::Checkpoints, document.clone())?)
        };
        self.buckets.change_settings(bucket, set).await
    }

    /// Creates the companion of a bucket unless it exists, and names its parent in it.
    pub(crate) async fn create_companion(self, parent: &Bucket, name: &str) -> Result<()> {
        let new = NewBucket {
            // Quotas of the owner must not keep its generations from being removed.
            owner: OWNER.to_owned(),
            index_shards: parent.index_shards,
            policy: None,
            settings: Settings::default(),
        };
        match self.buckets.create(&companion_of(parent.id), new).await {
            Ok(_) | Err(Error::BucketExists { .. }) => {}
            Err(error) => return Err(error),
        }
        self.committer.sets.name_parent(parent.id, name).await
    }

    /// Removes the rules of a bucket. Its sets leave the view, and the worker withdraws them.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn delete_rules(self, bucket: &str) -> Result<()> {
        self.buckets.delete_setting(bucket, Setting::Checkpoints).await
    }

    /// Key of the set for a key of the view that names a generation; other keys unchanged. Access to
    /// a generation is access to its set.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn plain_key(self, bucket: &str, key: &str) -> Result<String> {
        let context = self.committer.sets.context();
        let bucket = self.committer.sets.catalog.bucket(&context, bucket).await?;
        let Some(rules) = CheckpointRules::of(&bucket)? else { return Ok(key.to_owned()) };
        Ok(match rules.place(key) {
            Place::Generation { set, rest, .. } => format!("{set}{rest}"),
            Place::Outside | Place::Set { .. } => key.to_owned(),
        })
    }

    /// Object that a key of the bucket's view stands for.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`] for a bucket without rules; [`Error::NoSuchKey`] if a quorum knows
    /// that the view has no such key; otherwise that of the failed read.
    pub async fn resolve(self, bucket: &str, key: &str) -> Result<ViewedObject> {
        self.committer.sets.resolve(bucket, key).await
    }

    /// Lists a page of the bucket's view.
    ///
    /// # Errors
    /// As [`Checkpoints::resolve`]; a page is never shorter for lack of an answer.
    pub async fn list(self, bucket: &str, list: &ListObjects) -> Result<ObjectPage> {
        self.committer.sets.list(bucket, list).await
    }

    /// Commits exactly these objects as a generation.
    ///
    /// # Errors
    /// [`Error::CheckpointConflict`] names the objects that are missing or differ;
    /// [`Error::InvalidArgument`] for a set that no rule covers, or a malformed list;
    /// [`Error::NoSuchBucket`] for a bucket without rules.
    pub async fn commit(self, bucket_name: &str, new: &NewCommit) -> Result<CheckpointOutcome> {
        let invalid = |why: String| Error::InvalidArgument(why);
        let (bucket, rules) = self.ruled(bucket_name).await?;
        let set = new.published_as.as_ref().unwrap_or(&new.folder);
        let rule = rules
            .of_set(set)
            .ok_or_else(|| invalid(format!("no checkpoint rule covers the set {set:?}")))?;
        let wanted = wanted(new).map_err(invalid)?;
        let entries = self.current_of(&bucket, &new.folder, &wanted).await?;
        let manifest = Manifest { set: set.clone(), folder: new.folder.clone(), entries };
        let set = SetName::of(&bucket, bucket_name, set);
        let identity = blake3::hash(&manifest.encode());
        let noted = self.committer.noted(set, &manifest, rule).await?;
        let noted = Noted { marker: Some(format!("{EXPLICIT}{}", identity.to_hex())), ..noted };
        let note = |record: &mut SetRecord| Ok(record.note(noted.clone()));
        let outcome = self.committer.sets.change(bucket.id, set.set, note).await?;
        self.committer.outcome_of(set, outcome).await
    }

    pub(super) async fn ruled(self, bucket: &str) -> Result<(Arc<Bucket>, Arc<CheckpointRules>)> {
        let context = self.committer.sets.context();
        let bucket = self.committer.sets.catalog.bucket(&context, bucket).await?;
        let rules = CheckpointRules::of(&bucket)?.ok_or_else(|| {
            Error::InvalidBucketState("the bucket has no checkpoint rules".into())
        })?;
        Ok((bucket, rules))
    }

    /// Current versions of the wanted objects, in order of name.
    async fn current_of(
        self,
        bucket: &Bucket,
        folder: &str,
        wanted: &HashMap<&str, &NamedObject>,
    ) -> Result<Vec<ManifestEntry>> {
        let sets = &self.committer.sets;
        let context = sets.context();
        let paths = Paths::all(bucket, RegisterKind::Object).below(folder.as_bytes());
        let mut walk =
            sets.listings.walk_whole(&context, bucket, &paths, ListStart::First, 1000)?;
        walk.selection = RowSelection { detail: Detail::Summary, kinds: RowKinds::Objects };
        walk.meter.pause_at(Bound::Rows(SEEN_MAX));
        let (mut entries, mut differing) = (Vec::new(), Vec::new());
        let mut missing: HashSet<&str> = wanted.keys().copied().collect();
        while let Some((name, entry)) = walk.next().await? {
            let Value::Object(object) = entry.value else { continue };
            let rest = text(name.slice(folder.len()..))?;
            let Some(named) = wanted.get(rest.as_str()) else { continue };
            missing.remove(rest.as_str());
            if object.size != named.size || object.etag.to_string() != named.etag.trim_matches('"')
            {
                differing.push(format!("{} differs", named.key));
            }
            entries.push(entry_of(&rest, &object));
        }
        if walk.paused().is_some() {
            let message =
                format!("the folder has more than {SEEN_MAX} names, deleted ones included");
            return Err(Error::InvalidRequest(message));
        }
        let mut missing: Vec<&str> = missing.into_iter().collect();
        missing.sort_unstable();
        differing.extend(missing.iter().map(|rest| format!("{folder}{rest} is missing")));
        if differing.is_empty() {
            return Ok(entries);
        }
        let count = differing.len();
        differing.truncate(DIFFERENCES_MAX);
        Err(Error::CheckpointConflict(format!(
            "{count} objects are not as named: {}",
            differing.join(", ")
        )))
    }

    /// A set and its generations.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`] if there is no such set; [`Error::NoSuchBucket`].
    pub async fn set(self, bucket: &str, set: &str) -> Result<SetState> {
        let context = self.committer.sets.context();
        let bucket = self.committer.sets.catalog.bucket(&context, bucket).await?;
        let record = self.committer.sets.record(bucket.id, set).await?;
        let record = record.filter(|(record, _)| !record.generations.is_empty());
        record.map(|(record, _)| state_of(record)).ok_or(Error::NoSuchKey)
    }

    /// A page of at most `limit` sets after a name, in order; and the name after which more follow.
    /// Sets without generations are left out, so a page may be empty although more follow.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], or too few nodes replied.
    pub async fn sets(
        self,
        bucket: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<SetState>, Option<String>)> {
        let context = self.committer.sets.context();
        let bucket = self.committer.sets.catalog.bucket(&context, bucket).await?;
        let range = SetRange { prefix: "", after, limit };
        let (names, more) = match self.names(&companion_of(bucket.id), range).await {
            Err(Error::NoSuchBucket) => return Ok((Vec::new(), None)),
            names => names?,
        };
        let next = names.last().filter(|_| more).cloned();
        let mut states = Vec::with_capacity(names.len());
        for name in names {
            let record = self.committer.sets.record(bucket.id, &name).await?;
            let record = record.filter(|(record, _)| !record.generations.is_empty());
            states.extend(record.map(|(record, _)| state_of(record)));
        }
        Ok((states, next))
    }

    /// Names of sets of a companion bucket, in order; and true if more follow.
    pub(super) async fn names(
        self,
        companion: &str,
        range: SetRange<'_>,
    ) -> Result<(Vec<String>, bool)> {
        let SetRange { prefix, after, limit } = range;
        let sets = &self.committer.sets;
        let context = sets.context();
        let companion = sets.catalog.bucket(&context, companion).await?;
        let start = match after {
            Some(set) if set > prefix => ListStart::After(format!("{RECORDS}{set}").into()),
            _ => ListStart::First,
        };
        let mut walk = sets.records(&context, &companion, prefix, start, limit)?;
        let mut names = Vec::new();
        while let Some((name, entry)) = walk.next().await? {
            if !matches!(entry.value, Value::Object(_)) {
                continue;
            }
            if names.len() == limit {
                return Ok((names, true));
            }
            names.push(text(name.slice(RECORDS.len()..))?);
        }
        Ok((names, false))
    }

    /// Withdraws one generation of a set, or all. They leave the view at once; their versions stay
    /// pinned for a grace time, and until all holds end. Returns how many were withdrawn.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`] if there is no such set; [`Error::NoSuchBucket`].
    pub async fn withdraw(
        self,
        bucket_name: &str,
        set: &str,
        number: Option<u64>,
        deletes_objects: bool,
    ) -> Result<u64> {
        let state = self.set(bucket_name, set).await?;
        let context = self.committer.sets.context();
        let bucket = self.committer.sets.catalog.bucket(&context, bucket_name).await?;
        let set = SetName::of(&bucket, bucket_name, set);
        let why = Withdrawal {
            cause: WithdrawalCause::Other,
            reason: "asked for",
            deletes_objects,
            waits_for_holds: false,
        };
        let mut withdrawn = 0;
        for generation in &state.generations {
            if number.is_none_or(|number| number == generation.number) {
                let was_in = self.committer.withdraw(set, generation.number, why).await?;
                withdrawn += u64::from(was_in);
            }
        }
        Ok(withdrawn)
    }

    /// Takes a hold on a committed generation, or on the newest. No rule withdraws a held generation,
    /// and a withdrawn one keeps its versions until its holds end. Returns the generation's number.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`] if no such generation is committed; [`Error::InvalidArgument`] for a
    /// hold longer than a week.
    pub async fn hold(
        self,
        bucket: &str,
        set: &str,
        number: Option<u64>,
        hold_ms: u64,
    ) -> Result<u64> {
        if hold_ms > HOLD_MS_MAX {
            let message = format!("a hold lasts at most {} seconds", HOLD_MS_MAX / 1000);
            return Err(Error::InvalidArgument(message));
        }
        let context = self.committer.sets.context();
        let bucket = self.committer.sets.catalog.bucket(&context, bucket).await?;
        let until_ms = self.committer.sets.now_ms() + hold_ms;
        let hold = |record: &mut SetRecord| {
            let newest = record.newest().map(|newest| newest.number);
            let number = number.or(newest).ok_or(Error::NoSuchKey)?;
            if record.hold(number, until_ms) { Ok(number) } else { Err(Error::NoSuchKey) }
        };
        self.committer.sets.change(bucket.id, set, hold).await
    }
}

/// The objects of a commit by their names below the folder; an error says what is wrong.
fn wanted(new: &NewCommit) -> std::result::Result<HashMap<&str, &NamedObject>, String> {
    if !new.folder.ends_with('/') {
        return Err(format!("the folder {:?} must end with a slash", new.folder));
    }
    if new.objects.is_empty() || new.objects.len() > OBJECTS_MAX {
        return Err(format!("a commit names 1 to {OBJECTS_MAX} objects"));
    }
    let mut wanted = HashMap::with_capacity(new.objects.len());
    for named in &new.objects {
        let rest = named.key.strip_prefix(new.folder.as_str());
        let rest = rest.ok_or_else(|| format!("{:?} is not below {:?}", named.key, new.folder))?;
        if wanted.insert(rest, named).is_some() {
            return Err(format!("{:?} is named twice", named.key));
        }
    }
    Ok(wanted)
}

fn state_of(record: SetRecord) -> SetState {
    SetState { name: record.name, generations: record.generations }
}
