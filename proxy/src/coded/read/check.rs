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

use super::obtain::obtain;
use super::stripe::Stripe;
use crate::extents::ExtentClient;

/// Fails if a piece can't be read now.
pub(crate) async fn check(
    client: &Arc<ExtentClient>,
    policy: PolicyId,
    (extent, geometry): (ExtentRef, Geometry),
    pieces: &[&FragmentColumns],
) -> Result<()> {
    let stripe = Arc::new(Stripe::new(client, policy, extent, geometry));
    let here = join_all(pieces.iter().map(|piece| is_at_home(&stripe, piece.fragment))).await;
    let absent: Vec<_> =
        pieces.iter().zip(&here).filter(|(_, here)| !**here).map(|(piece, _)| *piece).collect();
    let Some(first) = absent.iter().map(|piece| piece.columns.start).min() else { return Ok(()) };
    let is_asked = |fragment| pieces.iter().any(|piece| piece.fragment == fragment);
    let useful = |fragment: &FragmentIndex| geometry.stored_bytes(*fragment) > first;
    let others = geometry.stored().iter().filter(|fragment| !is_asked(*fragment)).filter(useful);
    let others = join_all(others.map(|fragment| is_at_home(&stripe, fragment))).await;
    let under = pieces.iter().zip(here).filter(|(piece, here)| *here && useful(&piece.fragment));
    if under.count() + others.into_iter().filter(|here| *here).count() >= stripe.needed(first) {
        return Ok(());
    }
    let column = |piece: &&FragmentColumns| {
        let start = piece.columns.start;
        obtain(stripe.clone(), piece.fragment, start..start + 1)
    };
    try_join_all(absent.iter().map(column)).await.map(drop)
}

/// Returns true if a home of the fragment replies in time that it holds it.
async fn is_at_home(stripe: &Stripe, fragment: FragmentIndex) -> bool {
    let health = stripe.health();
    for place in stripe.places(fragment) {
        let Ok(node) = stripe.node(place.device) else { continue };
        if health.is_shunned(place.device) {
            continue;
        }
        let (begun, ids) = (Instant::now(), [stripe.id_of(fragment)]);
        let asked = node.presence(place.device, &ids);
        match timeout(health.patience(place.device), asked).await {
            Ok(Ok(presence)) if presence.first() == Some(&Presence::Here) => return true,
            Ok(_) => {}
            Err(_) => health.overtaken(place.device, begun.elapsed()),
        }
    }
    false
}
