//! Places of one coded extent's fragments, as known to one read, and places that failed.

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
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(10);

/// A fragment on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
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
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Places that the census reported; none before a census.
    found: Option<Vec<Place>>,
    /// Failed places; true if the failure is permanent.
    out: Vec<(Place, bool)>,
}

impl Stripe {
    pub(super) fn new(
        client: &Arc<ExtentClient>,
        policy: PolicyId,
        extent: ExtentRef,
        geometry: Geometry,
    ) -> Self {
        let (client, cluster) = (client.clone(), client.cluster());
        Self { client, cluster, policy, id: extent.id.whole(), geometry, known: Mutex::default() }
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

    /// Places of a fragment that have not failed, the likeliest first.
    pub(super) fn places(&self, fragment: FragmentIndex) -> Vec<Place> {
        let known = self.known.lock();
        let mut places = match (&known.found, self.ring()) {
            (Some(found), _) => found.clone(),
            (None, Ok(ring)) => {
                let homes = homes(ring, self.id_of(fragment)).into_iter();
                homes.map(|device| Place { fragment, device }).collect()
            }
            (None, Err(_)) => Vec::new(),
        };
        places.retain(|place| place.fragment == fragment);
        places.retain(|place| !known.out.iter().any(|(out, _)| out == place));
        places
    }

    /// Fragments to reconstruct `wanted` from column `column` on, healthy devices first. The order
    /// is rotated by extent id to spread the load.
    pub(super) fn sources(&self, wanted: FragmentIndex, column: u64) -> Vec<Place> {
        let stored = self.geometry.stored();
        let wanted: Fragments = [wanted].into_iter().collect();
        let mut sources: Vec<_> = stored
            .without(wanted)
            .iter()
            .filter(|fragment| self.geometry.stored_bytes(*fragment) > column)
            .filter_map(|fragment| self.places(fragment).first().copied())
            .collect();
        let turn = usize::from(self.id.0[14]) % sources.len().max(1);
        sources.rotate_left(turn);
        sources.sort_by_key(|place| self.health().is_shunned(place.device));
        sources
    }

    /// Opens columns of a fragment, and records the result.
    pub(super) async fn open(&self, place: Place, columns: Range<u64>) -> Result<FragmentReader> {
        let begun = Instant::now();
        let Place { fragment, device } = place;
        let opened = async {
            let node = self.node(device)?;
            let opening = FragmentReader::open(node, device, self.id_of(fragment), columns);
            let silent = |_| Error::unavailable(format!("device {device} doesn't answer"));
            timeout(ANSWER_TIME, opening).await.map_err(silent)?
        };
        let opened = opened.await;
        match &opened {
            Ok(_) => self.health().first_byte(device, begun.elapsed()),
            Err(error) => self.fail(place, error),
        }
        opened
    }

    /// Excludes a place until a census reports the fragment there.
    pub(super) fn fail(&self, place: Place, error: &Error) {
        // The device holds no usable fragment, and won't later.
        let for_good =
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Invalid);
        if for_good {
            self.health().answered(place.device);
        } else {
            self.health().failed(place.device);
        }
        let Place { fragment, device } = place;
        tracing::debug!(extent = %self.id, %fragment, %device, %error, "could not read a fragment");
        let mut known = self.known.lock();
        if !known.out.iter().any(|(out, _)| *out == place) {
            known.out.push((place, for_good));
        }
    }

    /// From now on, only places that the census reports count.
    pub(super) fn begin_census(&self) {
        self.known.lock().found = Some(Vec::new());
    }

    /// Records the fragments that a device reports. Its temporary failures are cleared.
    pub(super) fn find(&self, device: DeviceId, here: impl Iterator<Item = FragmentIndex>) {
        let mut known = self.known.lock();
        known.out.retain(|(out, for_good)| *for_good || out.device != device);
        let places = here.map(|fragment| Place { fragment, device });
        known.found.get_or_insert_default().extend(places);
    }

    /// Number of failed places.
    pub(super) fn failures(&self) -> usize {
        self.known.lock().out.len()
    }

    /// Returns true if a failure may be temporary.
    pub(super) fn may_recover(&self) -> bool {
        self.known.lock().out.iter().any(|(_, for_good)| !for_good)
    }
}
