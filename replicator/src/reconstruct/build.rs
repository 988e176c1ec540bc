//! Rebuilds lost fragments of an extent from others, and writes them to their homes.
//!
//! ```text
//! sources ──a step of columns──▶ coding ──▶ a body for each home ──▶ written, compared
//! ```
//!
//! All lost fragments are rebuilt in one pass over their sources, a step of columns at a time.
//! Memory holds one step of each source and two of each rebuilt fragment, whatever the extent's
//! length. A rebuilt fragment has the owner and birth of its siblings (rules X1, X4), and is on
//! disk when this returns. Its hashes follow its bytes, so that no other bytes are stored.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc;
use futures::future::{join, join_all};
use futures::{SinkExt, StreamExt};
use martlet_erasure::{FragmentIndex, Fragments};
use martlet_protocol::backend::{ExtentHasher, NewExtent, Presence, ReleaseCondition};
use martlet_protocol::extent::{ExtentRecord, ExtentRef};
use martlet_protocol::{BackendExt, DeviceId, Error, ErrorKind, ExtentId, Result};

use crate::cluster::{StepTopology, in_time};
use crate::coded::CodedExtent;
use crate::coded::read::Sources;
use crate::sent_copies::compare_held;
use crate::transfer_timeout::transfer_timeout;

/// Columns rebuilt at a time, in bytes of each fragment.
pub(super) const STEP_BYTES: u64 = 512 * 1024;
/// Time after which a home that accepts no bytes is given up, so that other homes get their
/// fragments.
const STUCK: Duration = Duration::from_secs(20);
/// Number of homes that may be given up before the other homes run out of time.
const HOMES_STUCK_MAX: u32 = 4;

/// A rebuild of lost fragments.
pub(crate) struct Rebuild {
    pub(crate) coded: CodedExtent,
    /// Record of any fragment.
    pub(crate) record: ExtentRecord,
    pub(crate) lost: Vec<FragmentIndex>,
    /// Fragments with their holders, in order of preference.
    pub(crate) sources: Vec<(FragmentIndex, DeviceId)>,
}

/// Outcome of a rebuild.
#[derive(Debug, Default)]
pub(crate) struct RebuildOutcome {
    /// Number of fragments written, and their bytes.
    pub(crate) made: u64,
    pub(crate) made_bytes: u64,
    pub(crate) read_bytes: u64,
    /// Homes that did not accept their fragments.
    pub(crate) failed: Vec<(DeviceId, ErrorKind)>,
}

/// A fragment that is being sent home.
struct RebuildTarget {
    id: ExtentId,
    home: DeviceId,
    bytes: u64,
    /// None once the home accepts no more bytes.
    body: Option<mpsc::Sender<Result<Bytes>>>,
    /// Its hashes follow the bytes.
    hasher: ExtentHasher,
}

impl Rebuild {
    /// Bytes to read and write for the rebuild.
    pub(crate) fn traffic_bytes(&self) -> u64 {
        let geometry = &self.coded.geometry;
        let made = self.lost.iter().map(|fragment| geometry.stored_bytes(*fragment));
        let read = u64::from(geometry.needed()) * geometry.columns();
        read + made.sum::<u64>()
    }

    /// Rebuilds lost fragments, except for homes that are `full`. None if a fragment was born at
    /// `young_ms` or later: its writer may still be at work.
    ///
    /// # Errors
    /// If too few sources can be read.
    pub(crate) async fn build(
        mut self,
        cluster: &StepTopology,
        full: &HashSet<DeviceId>,
        young_ms: u64,
    ) -> Result<Option<RebuildOutcome>> {
        if self.check_sources(cluster).await.is_some_and(|birth_ms| birth_ms >= young_ms) {
            return Ok(None);
        }
        self.pass_over_rebuilt(cluster).await;
        let mut built = RebuildOutcome::default();
        let is_full = |it: &FragmentIndex| full.contains(&self.coded.place(*it).home);
        let (refused, lost): (Vec<FragmentIndex>, Vec<_>) =
            self.lost.iter().copied().partition(is_full);
        let full = |it: FragmentIndex| (self.coded.place(it).home, ErrorKind::Full);
        built.failed.extend(refused.into_iter().map(full));
        if lost.is_empty() {
            return Ok(Some(built));
        }
        let (mut targets, writes): (Vec<RebuildTarget>, Vec<_>) =
            lost.iter().map(|fragment| self.target(cluster, *fragment)).unzip();
        let mut sources = Sources::new(cluster, &self.coded, std::mem::take(&mut self.sources));
        let feeding = feed(&self.coded, &mut sources, &lost, &mut targets);
        let (fed, written) = join(feeding, join_all(writes)).await;
        built.read_bytes = sources.read_bytes;
        for (target, written) in targets.into_iter().zip(written) {
            let home = target.home;
            match target.check_written(cluster, written).await {
                Ok(bytes) => {
                    built.made += u64::from(bytes > 0);
                    built.made_bytes += bytes;
                }
                Err(error) => {
                    tracing::debug!(extent = %self.coded.whole, %home, %error, "could not \
                                                                                reconstruct a \
                                                                                fragment");
                    built.failed.push((home, error.kind()));
                }
            }
        }
        if built.made == 0 { fed.map(|()| Some(built)) } else { Ok(Some(built)) }
    }

    /// Excludes fragments that have come home since the extent was looked at: their holder, or
    /// another worker, was faster. So two make a fragment only if they are at it at the same time.
    async fn pass_over_rebuilt(&mut self, cluster: &StepTopology) {
        let queries = self.lost.iter().map(|fragment| async {
            let (id, home) = (self.coded.id(*fragment), self.coded.place(*fragment).home);
            let presence = in_time(cluster.node(home).ok()?.presence(home, &[id])).await.ok()?;
            presence.first().copied()
        });
        let presences = join_all(queries).await.into_iter();
        let lost = self.lost.iter().copied().zip(presences);
        let lost = lost.filter(|(_, presence)| *presence != Some(Presence::Here));
        self.lost = lost.map(|(fragment, _)| fragment).collect();
    }

    /// Excludes sources that belong to another extent; returns the birth of the youngest.
    async fn check_sources(&mut self, cluster: &StepTopology) -> Option<u64> {
        let queries = self.sources.iter().map(|(fragment, device)| async {
            let id = self.coded.id(*fragment);
            Some(in_time(cluster.node(*device).ok()?.stat_extent(*device, id)).await.ok()?.record)
        });
        let records = join_all(queries).await;
        let geometry = &self.coded.geometry;
        let fits = |fragment: FragmentIndex, record: &ExtentRecord| {
            record.layout == self.record.layout
                && u64::from(record.extent.length) == geometry.stored_bytes(fragment)
        };
        let mut youngest = None;
        let mut usable = Vec::with_capacity(self.sources.len());
        for (source, record) in self.sources.iter().zip(records) {
            if let Some(record) = record.filter(|record| fits(source.0, record)) {
                youngest = youngest.max(Some(record.birth_ms));
                usable.push(*source);
            }
        }
        self.sources = usable;
        youngest
    }

    fn target<'a>(
        &self,
        cluster: &'a StepTopology,
        fragment: FragmentIndex,
    ) -> (RebuildTarget, impl Future<Output = Result<ExtentRef>> + use<'a>) {
        let (id, home) = (self.coded.id(fragment), self.coded.place(fragment).home);
        let bytes = self.coded.geometry.stored_bytes(fragment);
        let hasher = ExtentHasher::new(bytes);
        let new = NewExtent {
            id,
            owner: self.record.owner.clone(),
            length: Some(bytes),
            birth_ms: Some(self.record.birth_ms),
            layout: self.record.layout,
            hashes: Some(hasher.sent().clone()),
        };
        let (sender, body) = mpsc::channel(0);
        let limit = transfer_timeout(self.traffic_bytes()) + STUCK * HOMES_STUCK_MAX;
        let write = async move {
            let written = cluster.node(home)?.write_extent(home, new, body.boxed());
            let late = || Error::unavailable(format!("device {home} is too slow with extent {id}"));
            tokio::time::timeout(limit, written).await.unwrap_or_else(|_| Err(late()))
        };
        (RebuildTarget { id, home, bytes, body: Some(sender), hasher }, write)
    }
}

impl RebuildTarget {
    async fn send(&mut self, bytes: Bytes) {
        self.hasher.update(&bytes);
        let Some(body) = &mut self.body else { return };
        let sent = tokio::time::timeout(STUCK, body.send(Ok(bytes))).await;
        if !matches!(sent, Ok(Ok(()))) {
            self.body = None;
        }
    }

    /// Returns the fragment that was rebuilt; none if not all of its bytes were.
    fn rebuilt(&self) -> Option<ExtentRef> {
        let hashes = self.hasher.sent().get().ok()?;
        let length = u32::try_from(self.bytes).ok()?;
        Some(ExtentRef { id: self.id, length, blake3: hashes.blake3 })
    }

    /// Returns the bytes written; none if another worker was faster.
    async fn check_written(
        self,
        cluster: &StepTopology,
        written: Result<ExtentRef>,
    ) -> Result<u64> {
        let (id, home) = (self.id, self.home);
        let node = cluster.node(home)?;
        match written {
            Ok(written) if self.rebuilt() == Some(written) => Ok(self.bytes),
            Ok(written) => {
                let wrong = [ExtentRef { id, ..written }];
                let condition = ReleaseCondition::of_wrong_copies();
                in_time(node.release_copies(home, &wrong, &condition)).await?;
                Err(Error::corrupt(format!("device {home} has other bytes of {id} than were sent")))
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                if let Some(rebuilt) = self.rebuilt() {
                    return compare_held(cluster, home, rebuilt, error).await.map(|()| 0);
                }
                // The home refused before the fragment was rebuilt: there is nothing to compare with.
                match in_time(node.presence(home, &[id])).await?.first() {
                    Some(Presence::Here) => Ok(0),
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }
}

/// Rebuilds the lost fragments step by step, and sends them to their homes.
async fn feed(
    coded: &CodedExtent,
    sources: &mut Sources<'_>,
    lost: &[FragmentIndex],
    targets: &mut [RebuildTarget],
) -> Result<()> {
    let wanted: Fragments = lost.iter().copied().collect();
    let mut made = vec![Vec::new(); lost.len()];
    let columns = coded.geometry.columns();
    for from in (0..columns).step_by(usize::try_from(STEP_BYTES).expect("a step fits into memory"))
    {
        let step = from..(from + STEP_BYTES).min(columns);
        if let Err(error) = sources.make(wanted, &step, &mut made).await {
            for target in targets.iter_mut() {
                if let Some(mut body) = target.body.take() {
                    let failure = Error::new(error.kind(), "the fragment's sources can't be read");
                    let _ = tokio::time::timeout(STUCK, body.send(Err(failure))).await;
                }
            }
            return Err(error);
        }
        for (target, made) in targets.iter_mut().zip(&mut made) {
            // A fragment may end before its columns do.
            if !made.is_empty() {
                target.send(Bytes::from(std::mem::take(made))).await;
            }
        }
        if targets.iter().all(|target| target.body.is_none()) {
            break;
        }
    }
    for target in targets {
        target.body = None;
    }
    Ok(())
}
