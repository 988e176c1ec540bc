//! Check before the first byte of a read that its fragments are available. Later failures could
//! only break the body.
//!
//! The homes of the fragments under the range are queried first. If some lack theirs, the homes of
//! the other fragments are queried. If too few seem available, one column of each missing fragment
//! is read.

use std::sync::Arc;

use futures::future::{join_all, try_join_all};
use martlet_erasure::{FragmentColumns, FragmentIndex, Geometry};
use martlet_protocol::backend::Presence;
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{BackendExt, PolicyId, Result};
use tokio::time::{Instant, timeout};

use super::source::open_fragment;
use super::stripe::Stripe;
use crate::extents::ExtentClient;

/// Fails if a range can't be read now.
pub(crate) async fn check(
    client: &Arc<ExtentClient>,
    policy: PolicyId,
    extent: ExtentRef,
    geometry: Geometry,
    ranges: &[&FragmentColumns],
) -> Result<()> {
    let stripe = Arc::new(Stripe::new(client, policy, extent, geometry));
    let here = join_all(ranges.iter().map(|range| is_at_home(&stripe, range.fragment))).await;
    let absent: Vec<_> =
        ranges.iter().zip(&here).filter(|(_, here)| !**here).map(|(range, _)| *range).collect();
    let Some(first) = absent.iter().map(|range| range.columns.start).min() else { return Ok(()) };
    let is_requested = |fragment| ranges.iter().any(|range| range.fragment == fragment);
    let useful = |fragment: &FragmentIndex| geometry.stored_bytes(*fragment) > first;
    let others =
        geometry.stored().iter().filter(|fragment| !is_requested(*fragment)).filter(useful);
    let others = join_all(others.map(|fragment| is_at_home(&stripe, fragment))).await;
    let under = ranges.iter().zip(here).filter(|(range, here)| *here && useful(&range.fragment));
    if under.count() + others.into_iter().filter(|here| *here).count() >= stripe.needed(first) {
        return Ok(());
    }
    let column = |range: &&FragmentColumns| {
        let start = range.columns.start;
        open_fragment(stripe.clone(), range.fragment, start..start + 1)
    };
    try_join_all(absent.iter().map(column)).await.map(drop)
}

/// Returns true if a home of the fragment replies in time that it holds it.
async fn is_at_home(stripe: &Stripe, fragment: FragmentIndex) -> bool {
    let health = stripe.health();
    for location in stripe.locations(fragment) {
        let Ok(node) = stripe.node(location.device) else { continue };
        if health.is_shunned(location.device) {
            continue;
        }
        let (begun, ids) = (Instant::now(), [stripe.id_of(fragment)]);
        let calling = node.presence(location.device, &ids);
        match timeout(health.patience(location.device), calling).await {
            Ok(Ok(presence)) if presence.first() == Some(&Presence::Here) => return true,
            Ok(_) => {}
            Err(_) => health.overtaken(location.device, begun.elapsed()),
        }
    }
    false
}
