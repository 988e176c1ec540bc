//! Reads and writes of versions beside a head, during its ballot.

use bytes::Bytes;
use martlet_protocol::backend::{Detail, ListStart, RowKinds, RowSelection, Want};
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::{
    Error, Level, RegisterKey, RegisterKind, Stamp, Version, VersionId, WriteId,
};

use super::store::VersionStore;
use crate::context::RequestContext;
use crate::error::Result;
use crate::index::{Proposal, Round, Step};
use crate::walk::{Bound, Paths, SEEN_MAX, Walk};

/// The version in an entry, if it holds one.
pub(crate) fn version_of(entry: Option<&Entry>) -> Option<(Version, &Entry)> {
    let entry = entry?;
    Some((entry.value.version()?, entry))
}

/// The latest numbered version below a head, found before the ballot that needs it.
///
/// Versions are removed with tombstones, and a key may have a million of them. So the search goes
/// first, and the ballot reads one register. A version comes beside a head only by a ballot that
/// writes the head afterwards, at a higher order. So while the head has the same order, no version
/// below it has appeared. The found version may have been removed since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Below {
    /// Order of the head.
    head: Stamp,
    latest: Option<Version>,
}

/// Searches below a head in one ballot. Each one after the first follows a removal that began before
/// the ballot, and reached a minority of the replicas.
const SEARCHES_MAX: u32 = 8;

/// Result of a search below a head.
enum Found {
    Nothing,
    Version(Value, Option<Bytes>),
    /// The version that was found is removed.
    Gone,
}

impl VersionStore {
    /// Searches below a head, if it is the version that will be removed. None if the search fails.
    pub(super) async fn look_below(
        &self,
        context: &RequestContext,
        head: &RegisterKey,
        entry: Option<&Entry>,
        version: VersionId,
    ) -> Option<Below> {
        let (held, entry) = version_of(entry).filter(|(held, _)| held.name() == version)?;
        let found = self.latest_numbered(context, head, held, Bound::Unbounded).await.ok()?;
        Some(Below { head: entry.order, latest: found })
    }

    /// Copies the head's version beside it. None once the copy is on a quorum; otherwise the next
    /// step of the ballot.
    pub(super) async fn set_aside(&self, round: Round<'_>) -> Result<Option<Step>> {
        let Some((version, entry)) = version_of(round.view.entry.as_ref()) else { return Ok(None) };
        let key = RegisterKey::version(round.intent.key, version.name());
        let proposal = Proposal {
            value: entry.value.clone(),
            inline: round.view.inline.clone(),
            // The copy has the head's extents. Without an id it replaces an earlier null version,
            // whose extents become garbage.
            keep_body: version.id.is_some(),
        };
        self.registers.ballots.write_beside(round, &key, entry.write_id, proposal).await
    }

    /// Removes a version beside a head. None once a quorum has the tombstone; otherwise the next
    /// step of the ballot.
    pub(super) async fn bury(&self, round: Round<'_>, version: VersionId) -> Result<Option<Step>> {
        let key = RegisterKey::version(round.intent.key, version);
        let proposal = Proposal::of(Value::Tombstone);
        self.registers.ballots.write_beside(round, &key, WriteId::random(), proposal).await
    }

    /// The latest version beside a ballot's head that is older than the head, with its inline
    /// bytes. Without a search of the same head before the ballot it is searched for now, and again
    /// if a slower removal took the version that was found.
    ///
    /// # Errors
    /// Besides failed reads: a search now would pass too many removed versions, or slower removals
    /// took all that were found.
    pub(super) async fn latest_beside(
        &self,
        context: &RequestContext,
        round: Round<'_>,
        mut below: Option<Below>,
    ) -> Result<Option<(Value, Option<Bytes>)>> {
        for _ in 0..SEARCHES_MAX {
            match self.search_beside(context, round, below.take()).await? {
                Found::Nothing => return Ok(None),
                Found::Version(value, inline) => return Ok(Some((value, inline))),
                Found::Gone => {}
            }
        }
        Err(Error::unavailable("the versions below the head are being removed").into())
    }

    async fn search_beside(
        &self,
        context: &RequestContext,
        round: Round<'_>,
        below: Option<Below>,
    ) -> Result<Found> {
        let head = round.intent.key;
        let Some((held, entry)) = version_of(round.view.entry.as_ref()) else {
            return Ok(Found::Nothing);
        };
        let null = match held.id {
            // Beside a head without an id, the null register holds a copy of it or a replaced
            // version.
            None => None,
            Some(_) => self.beside(context, head, VersionId::Null).await?.map(|(null, _)| null),
        };
        let below = below.filter(|below| below.head == entry.order);
        let found = match below.map(|below| below.latest) {
            Some(None) => Some(None),
            // Removed meanwhile, if it is gone: it is searched for below.
            Some(Some(latest)) => {
                self.beside(context, head, latest.name()).await?.map(|(latest, _)| Some(latest))
            }
            None => None,
        };
        let numbered = match found {
            Some(found) => found,
            None => self.latest_numbered(context, head, held, Bound::Rows(SEEN_MAX)).await?,
        };
        let Some(version) = [null, numbered].into_iter().flatten().max() else {
            return Ok(Found::Nothing);
        };
        let key = RegisterKey::version(head, version.name());
        let view = self.registers.read(context, &key, Want::EntryAndInline, Level::Strict).await?;
        Ok(match view.entry {
            Some(entry) if entry.value.version().is_some() => {
                Found::Version(entry.value, view.inline)
            }
            _ => Found::Gone,
        })
    }

    /// Reads one version beside a head, if it exists.
    pub(super) async fn beside(
        &self,
        context: &RequestContext,
        head: &RegisterKey,
        version: VersionId,
    ) -> Result<Option<(Version, Entry)>> {
        let key = RegisterKey::version(head, version);
        let entry = self.registers.read(context, &key, Want::Entry, Level::Strict).await?.entry;
        Ok(entry.and_then(|entry| Some((entry.value.version()?, entry))))
    }

    async fn latest_numbered(
        &self,
        context: &RequestContext,
        head: &RegisterKey,
        held: Version,
        bound: Bound,
    ) -> Result<Option<Version>> {
        let write_id = held.id.unwrap_or(WriteId([0; 16]));
        let from = VersionId::Numbered { position: held.position, write_id };
        let start = ListStart::After(RegisterKey::version(head, from).name);
        let mut walk = Walk::new(&self.registers, context, &run_of(head), start, 1, Level::Strict)?;
        walk.selection = RowSelection { detail: Detail::Summary, kinds: RowKinds::Live };
        walk.meter.pause_at(bound);
        while let Some((_, entry)) = walk.next().await? {
            if let Some(version) = entry.value.version() {
                return Ok(Some(version));
            }
        }
        if walk.paused().is_some() {
            let message = "the key changed while its removed versions were passed";
            return Err(Error::unavailable(message).into());
        }
        Ok(None)
    }
}

/// Paths of the registers beside a head.
pub(super) fn run_of(head: &RegisterKey) -> Paths {
    let mut prefix = head.name.to_vec();
    prefix.push(0);
    Paths {
        bucket: head.bucket,
        shards: vec![head.shard],
        kind: RegisterKind::Version,
        prefix: prefix.into(),
        fold: None,
    }
}
