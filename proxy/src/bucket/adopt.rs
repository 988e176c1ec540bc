//! Buckets under the id of one whose register was lost (rule X8).
//!
//! Two buckets of one id would delete each other's objects. The list of buckets shows another name only
//! once its bucket exists, so a name claims the id before, by a ballot on a register of the id. A claim
//! lasts: after a crash the same name goes on. Adopting again under one name opens the bucket again.

use martlet_protocol::backend::{BucketFence, RegisterView};
use martlet_protocol::entry::{AccountDocument, Bucket, BucketState, Value};
use martlet_protocol::key::shard_of;
use martlet_protocol::lost::adoption_register;
use martlet_protocol::{
    BucketId, RegisterKind, Setting, Settings, Versioning, VersioningSetting, WriteId,
};

use super::admin::{Buckets, NewIdentity, create_as, policy_of_new};
use super::lock::lock_from_the_beginning;
use super::record::busy;
use super::versioning::SKEW_MS_MAX;
use crate::api::NewBucket;
use crate::error::{Error, Result};
use crate::index::{Intent, Proposal, Step, WriteOutcome};

/// Buckets listed at a time, in search of an id.
const PAGE: usize = 1000;

/// Versioning that a lost bucket had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostVersioning {
    /// Never enabled.
    Off,
    /// Suspended.
    Suspended,
    /// Enabled.
    Enabled,
    /// Enabled, with Object Lock.
    Locked,
}

/// Settings of a bucket that takes the place of a lost one at `now_ms`. What the lost bucket kept must
/// be kept from the first write on: a plain write replaces the current version, whatever locks it.
///
/// # Errors
/// [`Error::EntityTooLarge`].
pub fn settings_of_adopted(lost: LostVersioning, now_ms: u64) -> Result<Settings> {
    let mut settings = Settings::default();
    let state = match lost {
        LostVersioning::Off => return Ok(settings),
        LostVersioning::Suspended => Versioning::Suspended,
        LostVersioning::Enabled => Versioning::Enabled,
        LostVersioning::Locked => {
            lock_from_the_beginning(&mut settings)?;
            Versioning::Enabled
        }
    };
    // Orders of plain writes of the lost bucket lie below.
    let versioning = VersioningSetting { state, above_ms: now_ms + SKEW_MS_MAX };
    settings.set(Setting::Versioning, versioning.document())?;
    Ok(settings)
}

/// Creates a bucket under the id of one whose register was lost, so that its objects belong to
/// the bucket again. Name, owner and settings are new. The generation is above that of the
/// bucket's fences.
///
/// # Errors
/// As [`Buckets::create`]; [`Error::InvalidRequest`] if another name has or claims the id, if the
/// bucket exists with another owner or number of shards, if it was deleted, if registers of the bucket
/// lie in other shards or hold versions that the settings would not keep, or for the list of buckets; a
/// device of the index doesn't reply.
pub async fn adopt_bucket(
    buckets: Buckets<'_>,
    name: &str,
    new: NewBucket,
    id: BucketId,
) -> Result<Bucket> {
    if id == BucketId::ROOT {
        return Err(refused("the id is that of the list of buckets"));
    }
    // A claim lasts: a request that no bucket can be made of must not leave one.
    policy_of_new(buckets, &new)?;
    if let Some(there) = adopted(buckets, name, id).await? {
        if there.owner != new.owner || there.index_shards != new.index_shards {
            return Err(refused(
                "the bucket exists under this id, with another owner or --index-shards",
            ));
        }
        // A deletion that runs has closed this generation.
        if there.state != BucketState::Open {
            return Err(busy());
        }
        buckets.catalog.fences.fence(&there, true).await?;
        return Ok(there);
    }
    let fence = buckets.catalog.fences.highest(id).await?;
    if fence == Some(BucketFence::of_deleted(id)) {
        return Err(refused("the bucket was deleted: its objects don't come back"));
    }
    let keeps = VersioningSetting::of(new.settings.get(Setting::Versioning)).state.keeps_versions();
    check_registers(buckets, id, new.index_shards, keeps).await?;
    claim(buckets, name, id).await?;
    let generation = fence.map_or(1, |fence| fence.generation + 1);
    let bucket = create_as(buckets, name, new, NewIdentity { id, generation }).await?;
    // A deletion had closed the bucket, and was given up or interrupted.
    if fence.is_some_and(|fence| !fence.open) {
        buckets.catalog.fences.fence(&bucket, true).await?;
    }
    Ok(bucket)
}

fn refused(why: impl Into<String>) -> Error {
    Error::InvalidRequest(why.into())
}

/// Returns the bucket of this name and id, if an earlier adoption made it. Refuses an id that another
/// bucket has, and a name that is taken: the claim would name it.
async fn adopted(buckets: Buckets<'_>, name: &str, id: BucketId) -> Result<Option<Bucket>> {
    let mut after = None;
    loop {
        let (page, has_more) = buckets.list("", after.as_deref(), PAGE).await?;
        for there in &page {
            if there.bucket.id == id && there.name == name {
                return Ok(Some(Bucket::clone(&there.bucket)));
            }
            if there.bucket.id == id {
                return Err(refused(format!("the bucket {} has this id", there.name)));
            }
            if there.name == name {
                return Err(Error::BucketExists { owner: there.bucket.owner.clone() });
            }
        }
        after = page.last().map(|last| last.name.clone());
        if !has_more {
            return Ok(None);
        }
    }
}

/// Refuses a number of shards under which a register of the bucket would lie elsewhere, and a bucket
/// that keeps no versions if the lost one did. A sample of each device's registers is compared: under a
/// wrong number, half of all keys lie elsewhere. If no register is left, anything is accepted.
async fn check_registers(
    buckets: Buckets<'_>,
    id: BucketId,
    shards: u16,
    keeps_versions: bool,
) -> Result<()> {
    for key in buckets.catalog.fences.some_registers(id, shards).await? {
        if key.kind == RegisterKind::Version && !keeps_versions {
            return Err(refused(
                "the bucket has versions, which writes of an unversioned bucket would replace: name \
                 another --versioning",
            ));
        }
        let of_object = key.kind == RegisterKind::Object;
        if key.shard.0 >= shards || of_object && shard_of(&key.name, shards) != key.shard {
            let shard = key.shard.0;
            return Err(refused(format!(
                "a register of the bucket lies in shard {shard}, so the bucket did not have {shards} \
                 shards: name another --index-shards"
            )));
        }
    }
    Ok(())
}

/// Claims an id for a name.
async fn claim(buckets: Buckets<'_>, name: &str, id: BucketId) -> Result<()> {
    let key = adoption_register(id);
    let intent = Intent::of_root(&key, WriteId::random(), buckets.registers.stamps.now_ms());
    let mut evaluate = |view: &RegisterView| match view.entry.as_ref().map(|entry| &entry.value) {
        Some(Value::Account(claim)) if claim.bytes() == name.as_bytes() => Ok(Step::Keep),
        Some(Value::Account(claim)) => {
            let other = String::from_utf8_lossy(claim.bytes());
            Err(refused(format!("the name {other} claims this id: adopt the bucket under it")))
        }
        _ => {
            let claim = AccountDocument::new(name.as_bytes().to_vec());
            Ok(Step::Write(Proposal::of(Value::Account(claim))))
        }
    };
    match buckets.registers.ballots.decide(intent, &mut evaluate).await? {
        WriteOutcome::At(_) | WriteOutcome::Kept(_) => Ok(()),
        WriteOutcome::Fenced => Err(busy()),
    }
}
