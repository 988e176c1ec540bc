//! Reads of an extent from its remaining copies or fragments.
//!
//! A source that fails is excluded, and the next source replaces it. A corrupt fragment is
//! quarantined by its own node, and counts as lost everywhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use futures::TryStreamExt;
use futures::future::join_all;
use martlet_erasure::{Codec, FragmentColumns, FragmentIndex, Fragments, Recovery};
use martlet_protocol::backend::Presence;
use martlet_protocol::extent::{ExtentRef, Stripe};
use martlet_protocol::{DeviceId, Error, ErrorKind, ExtentId, PolicyId, Result};

use super::{CodedExtent, PresenceMap, code_of_policy};
use crate::cluster::StepTopology;
use crate::transfer_timeout::transfer_timeout;

/// Reads a range of an id on a device.
pub(crate) async fn read(
    cluster: &StepTopology,
    device: DeviceId,
    id: ExtentId,
    range: Range<u64>,
) -> Result<Vec<u8>> {
    let bytes = range.end - range.start;
    let reading = async {
        let stream = cluster.node(device)?.read_extent(device, id, range).await?;
        stream
            .try_fold(Vec::new(), |mut all, chunk| async move {
                all.extend_from_slice(&chunk);
                Ok(all)
            })
            .await
    };
    let late = || Error::unavailable(format!("device {device} is too slow with extent {id}"));
    tokio::time::timeout(transfer_timeout(bytes), reading).await.unwrap_or_else(|_| Err(late()))
}

/// Fragments of an extent that serve as sources.
pub(crate) struct Sources<'a> {
    cluster: &'a StepTopology,
    coded: &'a CodedExtent,
    codec: Codec,
    /// In order of preference.
    usable: Vec<(FragmentIndex, DeviceId)>,
    /// Error of the last source that failed.
    failed: Option<Error>,
    /// Bytes read so far.
    pub(crate) read_bytes: u64,
}

impl<'a> Sources<'a> {
    pub(crate) fn new(
        cluster: &'a StepTopology,
        coded: &'a CodedExtent,
        usable: Vec<(FragmentIndex, DeviceId)>,
    ) -> Self {
        let codec = Codec::new(coded.geometry.code());
        Self { cluster, coded, codec, usable, failed: None, read_bytes: 0 }
    }

    /// Computes `wanted` over `columns`, into one buffer each, in order.
    ///
    /// # Errors
    /// If too few sources are left.
    pub(crate) async fn make(
        &mut self,
        wanted: Fragments,
        columns: &Range<u64>,
        made: &mut [Vec<u8>],
    ) -> Result<()> {
        loop {
            let usable: Vec<FragmentIndex> = self.usable.iter().map(|(it, _)| *it).collect();
            let geometry = &self.coded.geometry;
            let recovery = Recovery::new(&self.codec, geometry, columns.clone(), wanted, &usable);
            // A source that was deleted since the query gives no reason about the others.
            let failed = self.failed.take().filter(|it| it.kind() != ErrorKind::NotFound);
            let recovery = recovery.map_err(|error| failed.unwrap_or(error))?;
            let reads = recovery.reads(columns);
            let answers = join_all(reads.iter().map(|piece| self.read(piece))).await;
            let mut read = Vec::with_capacity(reads.len());
            for (piece, answer) in reads.iter().zip(answers) {
                match answer {
                    Ok(bytes) => read.push(bytes),
                    Err(error) => self.leave_out(piece.fragment, error),
                }
            }
            self.read_bytes += read.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
            if read.len() == reads.len() {
                return recovery.recover(columns, &read, made);
            }
        }
    }

    async fn read(&self, piece: &FragmentColumns) -> Result<Vec<u8>> {
        if piece.columns.is_empty() {
            return Ok(Vec::new());
        }
        let source = self.usable.iter().find(|(fragment, _)| *fragment == piece.fragment);
        let (fragment, device) = source.ok_or_else(|| Error::internal("no such source"))?;
        let bytes =
            read(self.cluster, *device, self.coded.id(*fragment), piece.columns.clone()).await?;
        if bytes.len() as u64 == piece.bytes() {
            return Ok(bytes);
        }
        Err(Error::corrupt(format!("device {device} has {fragment} with another length")))
    }

    fn leave_out(&mut self, fragment: FragmentIndex, error: Error) {
        if let Some(at) = self.usable.iter().position(|(it, _)| *it == fragment) {
            let (_, device) = self.usable.remove(at);
            let id = self.coded.id(fragment);
            tracing::debug!(extent = %id, %device, %error, "could not read a fragment");
        }
        self.failed = Some(error);
    }
}

/// Reads the bytes of a coded extent from sufficient fragments.
///
/// # Errors
/// [`ErrorKind::NotFound`] if every device of the policy has answered, and no fragment exists, or
/// too few exist and others were deleted. Any other error means that the state is unknown.
pub(crate) async fn read_coded(
    cluster: &StepTopology,
    policy: PolicyId,
    extent: &ExtentRef,
) -> Result<Vec<u8>> {
    let code = code_of_policy(cluster, policy)?
        .ok_or_else(|| Error::invalid("a policy of copies has no fragments"))?;
    let stripe = Stripe { k: code.k(), m: code.m(), length: extent.length };
    let coded = CodedExtent::new(cluster, policy, extent.id, stripe)?;
    let data: Vec<FragmentIndex> =
        coded.fragments().filter(|fragment| code.is_data(*fragment)).collect();
    let homes = data.iter().map(|fragment| {
        let whole = 0..coded.geometry.stored_bytes(*fragment);
        read(cluster, coded.place(*fragment).home, coded.id(*fragment), whole)
    });
    let mut found: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    for (fragment, bytes) in data.iter().zip(join_all(homes).await) {
        if let Ok(bytes) = bytes {
            found.insert(fragment.0, bytes);
        }
    }
    if found.len() < data.len() {
        make_lost(cluster, &coded, &data, &mut found).await?;
    }
    let bytes: Vec<u8> = found.into_values().flatten().collect();
    if bytes.len() as u64 == u64::from(extent.length)
        && *blake3::hash(&bytes).as_bytes() == extent.blake3
    {
        return Ok(bytes);
    }
    Err(Error::corrupt(format!("the fragments of extent {} belong to something else", extent.id)))
}

/// Finds, or rebuilds, the data fragments that are not at home.
async fn make_lost(
    cluster: &StepTopology,
    coded: &CodedExtent,
    data: &[FragmentIndex],
    found: &mut BTreeMap<u8, Vec<u8>>,
) -> Result<()> {
    let everyone = coded.everyone(cluster)?;
    let ids: BTreeSet<ExtentId> = coded.fragments().map(|it| coded.id(it)).collect();
    let mut presences = PresenceMap::default();
    presences.query(cluster, everyone.iter().map(|device| (*device, ids.clone())).collect()).await;
    let mut usable = Vec::new();
    for fragment in coded.fragments() {
        let is_there =
            |device: &&DeviceId| presences.of(**device, coded.id(fragment)) == Some(Presence::Here);
        usable.extend(everyone.iter().filter(is_there).map(|device| (fragment, *device)));
    }
    let there: BTreeSet<FragmentIndex> = usable.iter().map(|(it, _)| *it).collect();
    if there.len() < usize::from(coded.geometry.needed()) {
        return Err(too_few(coded, &presences, there.len(), &ids, &everyone));
    }
    let lost: Vec<FragmentIndex> =
        data.iter().copied().filter(|it| !found.contains_key(&it.0)).collect();
    for fragment in lost {
        found.insert(fragment.0, find_or_make(cluster, coded, fragment, &usable).await?);
    }
    Ok(())
}

async fn find_or_make(
    cluster: &StepTopology,
    coded: &CodedExtent,
    fragment: FragmentIndex,
    usable: &[(FragmentIndex, DeviceId)],
) -> Result<Vec<u8>> {
    let whole = 0..coded.geometry.stored_bytes(fragment);
    for (_, device) in usable.iter().filter(|(it, _)| *it == fragment) {
        if let Ok(bytes) = read(cluster, *device, coded.id(fragment), whole.clone()).await {
            return Ok(bytes);
        }
    }
    let mut made = [Vec::new()];
    let mut sources = Sources::new(cluster, coded, usable.to_vec());
    sources.make([fragment].into_iter().collect(), &whole, &mut made).await?;
    let [made] = made;
    Ok(made)
}

/// Returns the error for too few fragments.
fn too_few(
    coded: &CodedExtent,
    presences: &PresenceMap,
    there: usize,
    ids: &BTreeSet<ExtentId>,
    everyone: &[DeviceId],
) -> Error {
    let (whole, needed) = (coded.whole, coded.geometry.needed());
    let message =
        format!("only {there} of the {needed} fragments needed of extent {whole} are left");
    let presence_of = |id: &ExtentId, device: &DeviceId| presences.of(*device, *id);
    let is_deleted =
        |id: &ExtentId| everyone.iter().any(|it| presence_of(id, it) == Some(Presence::Deleted));
    if !presences.silent.is_empty() {
        Error::unavailable(message)
    } else if there == 0 || ids.iter().any(is_deleted) {
        Error::not_found(message)
    } else {
        Error::new(ErrorKind::Corrupt, message)
    }
}
