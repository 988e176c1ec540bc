//! Rebuild of lost registers from the extents that name them as their owners (rule X8).
//!
//! ```text
//! records of a key ──plan──▶ bodies ──read, hash──▶ entry ──ballot, only if nothing is there──▶ register
//! ```
//!
//! An extent names bucket, key, write, part and offset. It doesn't name the order of its write, the
//! attributes of the object, or a later delete. So a rebuilt object has no metadata but a mark in
//! its user metadata, [`REBUILT`].
//!
//! Invariants:
//! * An entry is written by a ballot that found nothing: no entry, no tombstone, no fence. Hints of
//!   the key are asked for first, on all devices that have some. In a bucket that keeps versions, the
//!   ballot may have found a version that a rebuild brought back, and that was born before. With
//!   [`RebuildConsent::over_older`], it may have found an entry from before the hold that is older than
//!   the body.
//! * Versions come back in the order of their births. A body that can't be read for now ends the work
//!   on its key, so that no later one takes its place.
//! * The write id of the entry is derived from that of the body, so a second run, or another proxy,
//!   writes the same entry. It is not the body's own id: a client's write that is still in flight
//!   has that one, and replaces the entry with its metadata. Its last bytes mark it as derived.
//! * All bytes were read and compared with their hashes before.
//! * Collection is held while an entry is written, as far as the caller's [`HoldCheck`] knows.

mod choice;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::{
    Attributes, Body, Checksum, ChecksumAlgorithm, ETag, ETagKind, Entry, Manifest, Object, Value,
};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::lost::LostKey;
use martlet_protocol::{
    BootInstant, DeviceId, ErrorKind, Level, PolicyId, RegisterKind, Versioning, WriteId,
};
use parking_lot::Mutex;

use self::choice::{keep_current, refuse_without_order, take_newer};
use self::plan::{BodyKind, LostBody, bodies_of};
pub use self::plan::{NotRebuilt, RebuildConsent, RefusedBody};
use crate::bucket::{ObjectTarget, busy};
use crate::consistency::ConsistencyOptions;
use crate::digest::{Digests, md5_of_md5s};
use crate::error::{Error, Result};
use crate::index::{Intent, Proposal, Step, WriteOutcome};
use crate::lock::completed;
use crate::store::{ObjectStore, Services};
use crate::versions::New;
use crate::walk::Paths;

/// Milliseconds from the check of the hold within which an entry must be written: a hold that ends
/// later lets the sweep delete the extents only after it has found them twice.
const REBUILT_COMMIT_MS: u64 = 60_000;
/// Time for which the list of devices with hints is kept. A write that becomes a hint later is
/// concurrent with the rebuild.
const HINTS_KEPT: Duration = Duration::from_secs(1);

/// Name of the user metadata of rebuilt objects; its value is `true`.
pub const REBUILT: &str = "martlet-rebuilt";

/// Check before each write that collection is held. An error ends the work on the key.
pub type HoldCheck = dyn Fn() -> BoxFuture<'static, martlet_protocol::Result<()>> + Send + Sync;

/// Outcome for the extents of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyOutcome {
    /// True if the key has an entry: nothing is brought back.
    pub is_taken: bool,
    /// Objects that were brought back, or would be.
    pub objects: u64,
    /// Their bytes; of an object with a manifest in extents, the bytes of the manifest in a dry run.
    pub bytes: u64,
    /// Bodies that a later one of the key replaces.
    pub older: u64,
    /// Bodies that were born after the entry of the key, which stays.
    pub newer: u64,
    /// Bodies that are not brought back.
    pub refused: Vec<RefusedBody>,
}

impl KeyOutcome {
    /// Counts a body of a dry run.
    fn count(&mut self, body: &LostBody) {
        if let Some(reason) = body.refusal {
            self.refused.push(body.refused_for(reason));
        } else {
            self.objects += 1;
            self.bytes += body.bytes();
        }
    }
}

/// Sums of a body that was read.
struct Checked {
    manifest: Arc<Manifest>,
    /// Extents that hold the manifest, if any. Workers compare their bytes with these hashes.
    pieces: Vec<ExtentRef>,
    size: u64,
    etag: ETag,
    checksums: Vec<Checksum>,
}

/// Rebuild of many keys.
pub struct Rebuild {
    store: ObjectStore,
    consent: RebuildConsent,
    /// Start of the hold, in milliseconds since 1970.
    held_since_ms: u64,
    /// None in a dry run.
    hold: Option<Arc<HoldCheck>>,
    /// Devices with hints, and the time before they were asked. Sleep of the host counts.
    hints: Mutex<Option<(BootInstant, Arc<Vec<DeviceId>>)>>,
}

impl Rebuild {
    /// Shows which objects come back under a hold since `held_since_ms`, in milliseconds since 1970.
    /// Nothing is written, and no bytes are read.
    pub fn dry(store: ObjectStore, consent: RebuildConsent, held_since_ms: u64) -> Self {
        Self { store, consent, held_since_ms, hold: None, hints: Mutex::default() }
    }

    /// Brings objects back, as far as their extents show them, while `hold` succeeds.
    pub fn applied(
        store: ObjectStore,
        consent: RebuildConsent,
        held_since_ms: u64,
        hold: Arc<HoldCheck>,
    ) -> Self {
        Self { hold: Some(hold), ..Self::dry(store, consent, held_since_ms) }
    }

    /// Checks that all devices answer that keys can't be rebuilt without.
    ///
    /// # Errors
    /// A device of the index doesn't answer.
    pub async fn check_ready(&self) -> Result<()> {
        self.devices_with_hints().await.map(drop)
    }

    /// Brings the objects of a key back.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; too few replicas or devices reply; a hint of the key waits; a body
    /// can't be read for now; collection is not held; another run is at the key.
    pub async fn key(&self, bucket: &str, lost: &LostKey) -> Result<KeyOutcome> {
        let session = self.store.session(ConsistencyOptions::STRICT);
        let (context, services) = (session.context(), &*self.store.services);
        let target = services.buckets.target(&context, bucket, &lost.key).await?;
        if target.bucket.id != lost.bucket {
            return Err(Error::NoSuchBucket);
        }
        KeyRebuild { rebuild: self, services, target }.run(lost).await
    }

    /// Returns the devices that keep hints, as of at most [`HINTS_KEPT`] ago.
    async fn devices_with_hints(&self) -> Result<Arc<Vec<DeviceId>>> {
        let now = BootInstant::now();
        if let Some((asked, devices)) = &*self.hints.lock()
            && asked.elapsed() < HINTS_KEPT
        {
            return Ok(devices.clone());
        }
        let devices = Arc::new(self.store.services.buckets.fences.devices_with_hints().await?);
        *self.hints.lock() = Some((now, devices.clone()));
        Ok(devices)
    }
}

/// Rebuild of one key.
struct KeyRebuild<'a> {
    rebuild: &'a Rebuild,
    services: &'a Services,
    target: ObjectTarget<'a>,
}

impl KeyRebuild<'_> {
    async fn run(&self, lost: &LostKey) -> Result<KeyOutcome> {
        let Rebuild { consent, hold, .. } = self.rebuild;
        let keeps_all = self.target.bucket.versioning().state == Versioning::Enabled;
        let mut bodies = bodies_of(lost, *consent);
        let mut outcome = KeyOutcome::default();
        let mut held = None;
        if let Some(head) = self.head().await? {
            if !keeps_all || !is_rebuilt(&head) {
                let newer = take_newer(&head, &mut bodies, self.rebuild.held_since_ms);
                if newer == 0 || !consent.over_older {
                    return Ok(KeyOutcome { is_taken: true, newer, ..outcome });
                }
            }
            if keeps_all {
                self.compare_with(&head, &mut bodies).await?;
            }
            held = Some(head.write_id);
        }
        let with_hints = self.rebuild.devices_with_hints().await?;
        let fences = &self.services.buckets.fences;
        fences.check_nothing_kept_on(self.paths(), &with_hints).await?;
        match self.target.bucket.versioning().state {
            Versioning::Enabled if consent.latest => {}
            Versioning::Enabled => refuse_without_order(&mut bodies, held.is_some()),
            Versioning::Preparing | Versioning::Suspended => {
                for body in &mut bodies {
                    body.refusal = body.refusal.or(Some(NotRebuilt::Suspended));
                }
            }
            Versioning::Off => {
                outcome.older = keep_current(&mut bodies, consent.latest);
            }
        }
        let Some(hold) = hold else {
            for body in bodies {
                outcome.count(&body);
            }
            return Ok(outcome);
        };
        let whole = self.check_all(bodies, &**hold, &mut outcome).await?;
        for (body, checked) in whole {
            let size = checked.size;
            // A write that waits for longer than the hold may end is refused by the devices.
            let commit_by_ms = self.services.registers.stamps.now_ms() + REBUILT_COMMIT_MS;
            hold().await?;
            if !self.write(&body, checked, held, commit_by_ms).await? {
                if keeps_all && self.head().await?.is_some_and(|head| is_rebuilt(&head)) {
                    let message = "another rebuild is at the key";
                    return Err(martlet_protocol::Error::unavailable(message).into());
                }
                outcome.is_taken = true;
                return Ok(outcome);
            }
            held = Some(rebuilt_id(body.write_id));
            outcome.objects += 1;
            outcome.bytes += size;
        }
        Ok(outcome)
    }

    /// Reads all bodies that may come back. An older body than an unreadable one needs the operator's
    /// word: it would become the current one.
    async fn check_all(
        &self,
        bodies: Vec<LostBody>,
        hold: &HoldCheck,
        outcome: &mut KeyOutcome,
    ) -> Result<Vec<(LostBody, Checked)>> {
        let mut whole: Vec<(LostBody, Checked)> = Vec::new();
        for body in bodies {
            if let Some(reason) = body.refusal {
                outcome.refused.push(body.refused_for(reason));
                continue;
            }
            hold().await?;
            match self.check(&body).await {
                Ok(checked) => whole.push((body, checked)),
                Err(error) if is_lasting(&error) => {
                    let key = &self.target.key.name;
                    tracing::info!(?key, %error, "could not read a body without an entry");
                    outcome.refused.push(body.refused_for(NotRebuilt::Unreadable));
                    if !self.rebuild.consent.latest {
                        let older = whole.drain(..);
                        let refused =
                            older.map(|(older, _)| older.refused_for(NotRebuilt::Several));
                        outcome.refused.extend(refused);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(whole)
    }

    /// Returns the current entry of the key.
    async fn head(&self) -> Result<Option<Entry>> {
        let (context, key) = (self.target.context, &self.target.key);
        let registers = &self.services.registers;
        Ok(registers.read(context, key, Want::Entry, Level::Strict).await?.entry)
    }

    /// Removes bodies that are back as versions, or were removed since. Refuses others that were born
    /// before the head: they would become the current version.
    async fn compare_with(&self, head: &Entry, bodies: &mut Vec<LostBody>) -> Result<()> {
        let Value::Object(object) = &head.value else { return Ok(()) };
        let current = head.value.version().and_then(|version| version.id);
        bodies.retain(|body| Some(rebuilt_id(body.write_id)) != current);
        let (context, key) = (self.target.context, &self.target.key);
        let beside = self.services.versions.ids_beside(context, key).await?;
        bodies.retain(|body| !beside.contains(&rebuilt_id(body.write_id)));
        for body in bodies.iter_mut().filter(|body| body.born_ms < object.modified_ms) {
            body.refusal = body.refusal.or(Some(NotRebuilt::Behind));
        }
        Ok(())
    }

    /// Paths of the key's register, and those of keys that begin with the key.
    fn paths(&self) -> Paths {
        Paths {
            bucket: self.target.bucket.id,
            shards: vec![self.target.key.shard],
            kind: RegisterKind::Object,
            prefix: self.target.key.name.clone(),
            fold: None,
        }
    }

    /// Reads all bytes of a body, and compares them with their hashes.
    async fn check(&self, body: &LostBody) -> Result<Checked> {
        let (bodies, mut pieces) = (&self.services.bodies, Vec::new());
        let mut manifest = match body.kind {
            BodyKind::Manifest => {
                pieces.clone_from(&body.extents);
                self.read_part(body.policy, &mut pieces, ETagKind::Opaque).await?;
                Manifest::clone(&*bodies.spilled(body.policy, &body.extents).await?)
            }
            BodyKind::Whole | BodyKind::Parts => Manifest {
                policy: body.policy,
                extents: body.extents.clone(),
                parts: body.parts.clone(),
                part_checksums: Vec::new(),
            },
        };
        let stored = manifest.length();
        let lengths = if manifest.parts.is_empty() { vec![stored] } else { manifest.parts.clone() };
        if lengths.iter().sum::<u64>() != stored {
            return Err(differs("has parts of another length than its extents"));
        }
        let kind = self.target.bucket.etags();
        let policy = manifest.policy;
        let (mut tags, mut checksums) = (Vec::new(), Vec::new());
        let mut rest = &mut manifest.extents[..];
        for length in lengths {
            let count = extents_of(rest, length)?;
            let (part, after) = rest.split_at_mut(count);
            rest = after;
            let (tag, sums) = self.read_part(policy, part, kind).await?;
            tags.push(tag);
            checksums = sums;
        }
        let has_parts = !manifest.parts.is_empty();
        let etag = etag_of(kind, body, &tags, has_parts);
        if has_parts {
            checksums.clear();
        }
        Ok(Checked { manifest: Arc::new(manifest), pieces, size: stored, etag, checksums })
    }

    /// Reads a part: returns its MD5, and the checksums of its bytes. Sets the hashes of coded
    /// extents, whose records have none.
    async fn read_part(
        &self,
        policy: PolicyId,
        part: &mut [ExtentRef],
        kind: ETagKind,
    ) -> Result<([u8; 16], Vec<Checksum>)> {
        let algorithms = [ChecksumAlgorithm::Crc64Nvme];
        let mut digests = match kind {
            ETagKind::Md5 => Digests::new(&algorithms),
            ETagKind::Opaque => Digests::without_md5(&algorithms),
        };
        for extent in part {
            let (mut hasher, length) = (blake3::Hasher::new(), u64::from(extent.length));
            let one = std::slice::from_ref(extent);
            let mut bytes = self.services.bodies.read_extents(policy, one, 0..length).await?;
            while let Some(chunk) = bytes.next().await {
                let chunk = chunk?;
                hasher.update(&chunk);
                digests.update(&chunk);
            }
            let hash = *hasher.finalize().as_bytes();
            if extent.blake3 != [0; 32] && extent.blake3 != hash {
                return Err(differs("has an extent with another hash than its record"));
            }
            extent.blake3 = hash;
        }
        let sums = digests.finish();
        Ok((sums.md5.unwrap_or_default(), sums.checksums))
    }

    /// Writes the entry of a body by a ballot that finds nothing, or `held`. Returns false if the
    /// register has another entry.
    async fn write(
        &self,
        body: &LostBody,
        checked: Checked,
        held: Option<WriteId>,
        commit_by_ms: u64,
    ) -> Result<bool> {
        let Checked { manifest, pieces, size, etag, checksums } = checked;
        let body_of_entry = match body.kind {
            BodyKind::Manifest => Body::Spilled { policy: body.policy, manifest: pieces },
            BodyKind::Whole | BodyKind::Parts => Body::Extents(Manifest::clone(&manifest)),
        };
        let mark = (REBUILT.to_owned(), "true".to_owned());
        let object = Object {
            size,
            etag,
            modified_ms: body.born_ms,
            attributes: Attributes { user_metadata: vec![mark], ..Attributes::default() },
            checksums,
            upload: body.upload,
            body: body_of_entry,
            version: None,
        };
        let bucket = &*self.target.bucket;
        let value = Value::Object(Box::new(object));
        let value = completed(bucket, &value)?;
        let intent = self.target.intent(rebuilt_id(body.write_id), commit_by_ms);
        let is_free = |view: &RegisterView| view.entry.as_ref().map(|it| it.write_id) == held;
        let outcome = if bucket.versioning().state.keeps_versions() {
            let mut check = |view: &RegisterView| Ok(is_free(view));
            let new = New { value: &value, inline: None };
            let (versions, context) = (&self.services.versions, self.target.context);
            versions.append(context, bucket, intent, new, &mut check).await?.0
        } else {
            self.replace_nothing(intent, &value, &is_free).await?
        };
        match outcome {
            WriteOutcome::At(_) => Ok(true),
            WriteOutcome::Kept(_) => Ok(false),
            WriteOutcome::Fenced => Err(busy()),
        }
    }

    async fn replace_nothing(
        &self,
        intent: Intent<'_>,
        value: &Value,
        is_free: &(dyn Fn(&RegisterView) -> bool + Sync),
    ) -> Result<WriteOutcome> {
        let mut evaluate = |view: &RegisterView| {
            let proposal = || Step::Write(Proposal::of(value.clone()));
            Ok(if is_free(view) { proposal() } else { Step::Keep })
        };
        Ok(self.services.registers.ballots.decide(intent, &mut evaluate).await?)
    }
}

/// Returns true for errors that another attempt repeats: no copy has these bytes.
fn is_lasting(error: &Error) -> bool {
    let Error::Backend(error) = error else { return false };
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound)
}

/// Returns true if a rebuild made the version. Its tags and locks may have changed since.
fn is_rebuilt(entry: &Entry) -> bool {
    let Value::Object(object) = &entry.value else { return false };
    let is_marked = object.attributes.user_metadata.iter().any(|(name, _)| name == REBUILT);
    let id = entry.value.version().and_then(|version| version.id);
    is_marked && id.is_some_and(|id| id.0[12..] == mark_of(&id.0[..12]))
}

/// Returns the number of the first extents that have `length` bytes together.
fn extents_of(extents: &[ExtentRef], length: u64) -> Result<usize> {
    let (mut count, mut bytes) = (0, 0);
    while bytes < length && count < extents.len() {
        bytes += u64::from(extents[count].length);
        count += 1;
    }
    if bytes == length { Ok(count) } else { Err(differs("has a part that ends within an extent")) }
}

/// Returns the ETag that the object had: an opaque one names its write. The opaque ETag of a
/// manifest's parts is unknown, so the object gets another one.
fn etag_of(kind: ETagKind, body: &LostBody, tags: &[[u8; 16]], has_parts: bool) -> ETag {
    let count = u16::try_from(tags.len()).unwrap_or(u16::MAX);
    match kind {
        ETagKind::Md5 if has_parts => kind.multipart(md5_of_md5s(tags.iter()), count),
        ETagKind::Md5 => kind.whole(tags.first().copied().unwrap_or_default()),
        ETagKind::Opaque if body.kind == BodyKind::Parts => {
            kind.multipart(md5_of_md5s(body.part_writes.iter().map(|id| &id.0)), count)
        }
        ETagKind::Opaque if has_parts => kind.multipart(body.write_id.0, count),
        ETagKind::Opaque => kind.whole(body.write_id.0),
    }
}

/// Returns the write id of the entry that brings a body back.
fn rebuilt_id(write_id: WriteId) -> WriteId {
    let hash = blake3::derive_key("martlet 2026-11-28 write id of a rebuilt entry", &write_id.0);
    let mut id = [0; 16];
    id[..12].copy_from_slice(&hash[..12]);
    let mark = mark_of(&hash[..12]);
    id[12..].copy_from_slice(&mark);
    WriteId(id)
}

/// Last bytes of a derived id: a random one has them once in 2³² times.
fn mark_of(beginning: &[u8]) -> [u8; 4] {
    let hash = blake3::derive_key("martlet 2026-11-28 mark of a rebuilt write id", beginning);
    [hash[0], hash[1], hash[2], hash[3]]
}

fn differs(how: &str) -> Error {
    martlet_protocol::Error::corrupt(format!("the body {how}")).into()
}
