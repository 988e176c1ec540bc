//! The identity round (rule R6): what replicas hold, settled at a fresh ballot under its own write id.
//!
//! ```text
//! promise(b) at a quorum ──▶ the newest of what is known and what they hold ──▶ the same write at b
//! ```
//!
//! The second half goes as a repair whose order is the ballot: it obeys promises as an accept does,
//! and asks neither for the bucket's generation, which nobody here knows, nor for the write's age.

use bytes::Bytes;
use futures::future::join_all;
use martlet_protocol::backend::{EntryWrite, PromiseReply, RegisterView, WriteReply};
use martlet_protocol::entry::Body;
use martlet_protocol::register::WriteMode;
use martlet_protocol::{DeviceId, Entry, Error, RegisterKey, Result, Stamp, StampSource};

use crate::cluster::{Cluster, in_time};

/// Ballots that are tried before whoever else is at it is left alone.
const TRIES: usize = 4;

/// A write that may end up in a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) entry: Entry,
    pub(crate) inline: Option<Bytes>,
    /// As in [`EntryWrite::keep_body`].
    pub(crate) keep_body: bool,
}

/// Who votes on a register, and how many of them it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Voters<'a> {
    pub(crate) devices: &'a [DeviceId],
    pub(crate) quorum: usize,
}

impl Candidate {
    /// What a register holds, if it holds anything whole.
    ///
    /// What the entry that it replaces leaves behind becomes a record of garbage, which is looked into
    /// before anything is deleted.
    pub(crate) fn of(view: RegisterView) -> Option<Self> {
        let RegisterView { entry, inline, .. } = view;
        let entry = entry?;
        let is_whole = inline.is_some() || !matches!(entry.value.body(), Some(Body::Inline { .. }));
        is_whole.then_some(Self { entry, inline, keep_body: false })
    }

    /// As it is brought to a replica that may not hold it.
    pub(crate) fn repair(&self, key: &RegisterKey) -> EntryWrite {
        EntryWrite {
            key: key.clone(),
            entry: self.entry.clone(),
            inline: self.inline.clone(),
            mode: WriteMode::Repair,
            generation: u64::MAX,
            commit_by_ms: u64::MAX,
            keep_body: self.keep_body,
        }
    }
}

/// The higher of two orders, where either may be missing.
pub(crate) fn newest(one: Option<Candidate>, other: Option<Candidate>) -> Option<Candidate> {
    let order = |candidate: &Option<Candidate>| candidate.as_ref().map(|it| it.entry.order);
    if order(&other) > order(&one) { other } else { one }
}

/// Settles a register among `voters`: the newest of `known` and what a quorum holds is what a quorum
/// holds afterwards, at a ballot above `above`. None when there is nothing to settle.
pub(crate) async fn settle(
    cluster: &Cluster,
    stamps: &StampSource,
    key: &RegisterKey,
    voters: Voters<'_>,
    known: Option<Candidate>,
    mut above: Stamp,
) -> Result<Option<Candidate>> {
    for _ in 0..TRIES {
        let ballot = stamps.issue_above(above);
        let (promised, behind) = promise(cluster, key, voters, ballot).await;
        above = above.max(behind);
        if promised.len() < voters.quorum {
            if behind == Stamp::ZERO {
                return Err(Error::unavailable("no quorum of primaries promises"));
            }
            continue;
        }
        let devices: Vec<DeviceId> = promised.iter().map(|(device, _)| *device).collect();
        // Something that is held, but not whole, was replaced since: its ballot has lost.
        let views = promised.into_iter().map(|(_, view)| view);
        let found = views.map(|view| (view.entry.is_some(), Candidate::of(view)));
        let (found, broken): (Vec<_>, Vec<_>) =
            found.partition(|(holds, candidate)| *holds == candidate.is_some());
        if !broken.is_empty() {
            continue;
        }
        let found = found.into_iter().map(|(_, candidate)| candidate);
        let Some(mut chosen) = found.fold(known.clone(), newest) else { return Ok(None) };
        chosen.entry.order = ballot;
        let (stored, behind) = accept(cluster, key, &devices, &chosen).await;
        if stored >= voters.quorum {
            return Ok(Some(chosen));
        }
        if behind == Stamp::ZERO {
            return Err(Error::unavailable("no quorum of primaries accepts"));
        }
        above = above.max(behind);
    }
    Err(Error::conflict("others are writing the register"))
}

/// Who promised and what they hold, and the highest of what refusals named.
async fn promise(
    cluster: &Cluster,
    key: &RegisterKey,
    voters: Voters<'_>,
    ballot: Stamp,
) -> (Vec<(DeviceId, RegisterView)>, Stamp) {
    let calls = voters.devices.iter().map(|device| async move {
        let node = cluster.node(*device)?;
        in_time(node.promise(*device, key, ballot)).await.map(|reply| (*device, reply))
    });
    let (mut promised, mut above) = (Vec::new(), Stamp::ZERO);
    for reply in join_all(calls).await.into_iter().flatten() {
        match reply {
            (device, PromiseReply::Promised(view)) => promised.push((device, view)),
            (_, PromiseReply::Behind(floor)) => above = above.max(floor),
        }
    }
    (promised, above)
}

/// How many hold it now, and the highest of what refusals named.
async fn accept(
    cluster: &Cluster,
    key: &RegisterKey,
    devices: &[DeviceId],
    chosen: &Candidate,
) -> (usize, Stamp) {
    let calls = devices.iter().map(|device| async move {
        in_time(cluster.node(*device)?.write(*device, chosen.repair(key))).await
    });
    let (mut stored, mut above) = (0, Stamp::ZERO);
    for reply in join_all(calls).await.into_iter().flatten() {
        match reply {
            WriteReply::Stored => stored += 1,
            WriteReply::Behind(floor) => above = above.max(floor),
            WriteReply::Superseded => above = above.max(chosen.entry.order),
            WriteReply::Fenced | WriteReply::OutOfTime | WriteReply::Unvoted => {}
        }
    }
    (stored, above)
}
