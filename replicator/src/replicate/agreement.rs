//! Comparison of a device's copies with those of the extents' primaries.
//!
//! Presence says nothing about bytes. A primary with other bytes under the same id is no reason to
//! release a copy, and two contents are no reason to make a third copy of either.

use std::collections::BTreeMap;

use futures::StreamExt;
use martlet_protocol::backend::Sought;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{BackendExt, DeviceId, ExtentId};

use super::required_devices::RequiredDevices;
use crate::cluster::in_time;
use crate::sent_copies::is_same;

/// Devices queried concurrently.
const AT_ONCE: usize = 16;

/// Copies on the primaries of an extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// True if every primary has the same bytes as the device.
    pub(crate) is_everywhere: bool,
    /// True if a primary has other bytes.
    pub(crate) differs: bool,
    /// True if a primary did not answer.
    pub(crate) is_silent: bool,
}

/// Compares the copies of a device with those of the primaries, in order.
pub(super) async fn agreement(
    places: &RequiredDevices<'_>,
    records: &[&ExtentRecord],
) -> Vec<Agreement> {
    agreement_without(places, records, None).await
}

/// Compares the copies of a device, which may be a primary, with those of the other primaries, in order.
pub(crate) async fn agreement_of_others(
    places: &RequiredDevices<'_>,
    device: DeviceId,
    records: &[&ExtentRecord],
) -> Vec<Agreement> {
    agreement_without(places, records, Some(device)).await
}

async fn agreement_without(
    places: &RequiredDevices<'_>,
    records: &[&ExtentRecord],
    own: Option<DeviceId>,
) -> Vec<Agreement> {
    let mut queries: BTreeMap<DeviceId, Vec<usize>> = BTreeMap::new();
    for (at, record) in records.iter().enumerate() {
        for primary in places.primaries(record).into_iter().filter(|it| Some(*it) != own) {
            queries.entry(primary).or_default().push(at);
        }
    }
    let calls = queries.into_iter().map(|(primary, at)| async move {
        let ids: Vec<ExtentId> = at.iter().map(|at| records[*at].extent.id).collect();
        let sought = async {
            let node = places.cluster().node(primary)?;
            in_time(node.seek_extents(primary, &ids)).await
        };
        (primary, at, sought.await)
    });
    let calls: Vec<_> = calls.collect();
    let answers: Vec<_> = futures::stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
    let none = Agreement { is_everywhere: true, ..Agreement::default() };
    let mut agreed = vec![none; records.len()];
    for (primary, at, answer) in answers {
        let sought = answer.unwrap_or_else(|error| {
            tracing::debug!(device = %primary, %error, "could not compare a device's extents");
            Vec::new()
        });
        for (nth, at) in at.into_iter().enumerate() {
            let held = match sought.get(nth) {
                Some(Sought::Here(held)) => Some(is_same(primary, held, records[at].extent)),
                _ => None,
            };
            agreed[at].is_everywhere &= held == Some(true);
            agreed[at].differs |= held == Some(false);
            agreed[at].is_silent |= sought.len() <= nth;
        }
    }
    agreed
}
