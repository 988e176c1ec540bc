//! Reads of erasure-coded extents.
//!
//! A healthy range is read only from the fragments under it; each is a plain read of one extent of
//! one device. A fragment that its home can't deliver is reconstructed from the same columns of
//! others, stepwise, within the memory bound of a read.
//!
//! ```text
//! bodies ──▶ stream ──▶ source ──┬──▶ home of the fragment         source: the cheapest first
//!                                ├──▶ reconstruction               reconstruction: in steps, the next
//!                                │        └──▶ collector           one ahead
//!                                │                 └──▶ homes      collector: any k fragments
//!                                └──▶ census ──▶ all devices       census: finds all fragments
//!
//!                stripe: locations of fragments, and their failures
//! ```
//!
//! `check` verifies before the first byte is sent that the rest of an extent can be read.
//!
//! Invariants:
//! * A stream returns the requested columns, each byte once and in order, or ends in an error. Only
//!   fragments that their devices verified are decoded.
//! * Fragments away from home are looked for only if too few are at home.
//! * An extent with too few fragments is unavailable ([`ErrorKind::Unavailable`]) while a device
//!   that may hold more doesn't reply. It is lost ([`ErrorKind::Internal`]) once all have replied.
//! * Dropping a stream ends all of its requests.
//!
//! [`ErrorKind::Unavailable`]: martlet_protocol::ErrorKind::Unavailable
//! [`ErrorKind::Internal`]: martlet_protocol::ErrorKind::Internal

mod census;
mod check;
mod collector;
mod reconstruction;
mod source;
mod stream;
mod stripe;

use martlet_erasure::{Code, Geometry};
use martlet_protocol::{Error, PolicyId, Result};
use martlet_topology::Cluster;

pub(crate) use check::check;
pub(crate) use stream::FragmentStream;

/// Fragment geometry of an extent of `length` bytes; none if devices hold copies.
pub(crate) fn geometry(
    cluster: &Cluster,
    policy: PolicyId,
    length: u64,
) -> Result<Option<Geometry>> {
    let Some(code) = Code::of(cluster.data(policy)?.identity().redundancy)? else {
        return Ok(None);
    };
    let geometry = Geometry::new(code, length);
    let wrong = |error| Error::corrupt("a manifest names an impossible extent").with_source(error);
    geometry.map(Some).map_err(wrong)
}
