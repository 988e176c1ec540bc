//! Locations of one coded extent's fragments in one read, and locations that failed.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use martlet_erasure::{Codec, FragmentIndex, Fragments, Geometry};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{Backend, DeviceId, Error, ErrorKind, ExtentId, PolicyId, Result};
use martlet_ring::Ring;
use martlet_topology::Cluster;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::extents::{ExtentClient, FragmentReader, homes};
use crate::health::Health;

/// Timeout of a device's reply.
pub(super) const REPLY_TIME: Duration = Duration::from_secs(10);

/// A fragment on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FragmentLocation {
    pub(super) fragment: FragmentIndex,
    pub(super) device: DeviceId,
}

/// One coded extent, as seen by one read.
pub(super) struct Stripe {
    pub(super) client: Arc<ExtentClient>,
    cluster: Arc<Cluster>,
    policy: PolicyId,
    id: ExtentId,
    pub(super) geometry: Geometry,
    state: Mutex<LocationState>,
}

#[derive(Default)]
struct LocationState {
    /// Locations that the census reported; none before a census.
    reported: Option<Vec<FragmentLocation>>,
    /// Failed locations; true if the failure is permanent.
    failed: Vec<(FragmentLocation, bool)>,
}

impl Stripe {
    pub(super) fn new(
        client: &Arc<ExtentClient>,
        policy: PolicyId,
        extent: ExtentRef,
        geometry: Geometry,
    ) -> Self {
        let (client, cluster) = (client.clone(), client.cluster());
        Self { client, cluster, policy, id: extent.id.whole(), geometry, state: Mutex::default() }
    }

    pub(super) fn health(&self) -> &Health {
        &self.client.health
    }

    pub(super) fn ring(&self) -> Result<&Ring> {
        self.cluster.data(self.policy)
    }

    pub(super) fn node(&self, device: DeviceId) -> Result<Arc<dyn Backend>> {
        self.cluster.node(device).cloned()
    }

    pub(super) fn codec(&self) -> Codec {
        self.client.codecs.get(self.geometry.code())
    }

    pub(super) fn id(&self) -> ExtentId {
        self.id
    }

    pub(super) fn id_of(&self, fragment: FragmentIndex) -> ExtentId {
        self.id.fragment(fragment.0)
    }

    /// Number of fragments needed to decode from column `column` on.
    pub(super) fn needed(&self, column: u64) -> usize {
        let data = self.geometry.code().data();
        data.filter(|fragment| self.geometry.stored_bytes(*fragment) > column).count()
    }

    /// Locations of a fragment that have not failed, the likeliest first.
    pub(super) fn locations(&self, fragment: FragmentIndex) -> Vec<FragmentLocation> {
        let state = self.state.lock();
        let mut locations = match (&state.reported, self.ring()) {
            (Some(found), _) => found.clone(),
            (None, Ok(ring)) => {
                let homes = homes(ring, self.id_of(fragment)).into_iter();
                homes.map(|device| FragmentLocation { fragment, device }).collect()
            }
            (None, Err(_)) => Vec::new(),
        };
        locations.retain(|location| location.fragment == fragment);
        locations.retain(|location| !state.failed.iter().any(|(out, _)| out == location));
        locations
    }

    /// Fragments to reconstruct `wanted` from column `column` on, healthy devices first. The order
    /// is rotated by extent id to spread the load.
    pub(super) fn sources(&self, wanted: FragmentIndex, column: u64) -> Vec<FragmentLocation> {
        let stored = self.geometry.stored();
        let wanted: Fragments = [wanted].into_iter().collect();
        let mut sources: Vec<_> = stored
            .without(wanted)
            .iter()
            .filter(|fragment| self.geometry.stored_bytes(*fragment) > column)
            .filter_map(|fragment| self.locations(fragment).first().copied())
            .collect();
        let turn = usize::from(self.id.0[14]) % sources.len().max(1);
        sources.rotate_left(turn);
        sources.sort_by_key(|location| self.health().is_shunned(location.device));
        sources
    }

    /// Opens columns of a fragment, and records the result.
    pub(super) async fn open(
        &self,
        location: FragmentLocation,
        columns: Range<u64>,
    ) -> Result<FragmentReader> {
        let begun = Instant::now();
        let FragmentLocation { fragment, device } = location;
        let opened = async {
            let node = self.node(device)?;
            let opening = FragmentReader::open(node, device, self.id_of(fragment), columns);
            let silent = |_| Error::unavailable(format!("device {device} doesn't answer"));
            timeout(REPLY_TIME, opening).await.map_err(silent)?
        };
        let opened = opened.await;
        match &opened {
            Ok(_) => self.health().first_byte(device, begun.elapsed()),
            Err(error) => self.fail(location, error),
        }
        opened
    }

    /// Excludes a location until a census reports the fragment there.
    pub(super) fn fail(&self, location: FragmentLocation, error: &Error) {
        // The device holds no usable fragment, and won't later.
        let for_good =
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Invalid);
        if for_good {
            self.health().answered(location.device);
        } else {
            self.health().failed(location.device);
        }
        let FragmentLocation { fragment, device } = location;
        tracing::debug!(extent = %self.id, %fragment, %device, %error, "could not read a fragment");
        let mut state = self.state.lock();
        if !state.failed.iter().any(|(out, _)| *out == location) {
            state.failed.push((location, for_good));
        }
    }

    /// From now on, only locations that the census reports count.
    pub(super) fn begin_census(&self) {
        self.state.lock().reported = Some(Vec::new());
    }

    /// Records the fragments that a device reports. Its temporary failures are cleared.
    pub(super) fn find(&self, device: DeviceId, here: impl Iterator<Item = FragmentIndex>) {
        let mut state = self.state.lock();
        state.failed.retain(|(out, for_good)| *for_good || out.device != device);
        let locations = here.map(|fragment| FragmentLocation { fragment, device });
        state.reported.get_or_insert_default().extend(locations);
    }

    /// Number of failed locations.
    pub(super) fn failures(&self) -> usize {
        self.state.lock().failed.len()
    }

    /// Returns true if a failure may be temporary.
    pub(super) fn may_recover(&self) -> bool {
        self.state.lock().failed.iter().any(|(_, for_good)| !for_good)
    }
}
