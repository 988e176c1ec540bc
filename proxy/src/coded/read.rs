//! Coded extents on their way out.
//!
//! A healthy range is read from the fragments under it and nobody else: each is a plain read of one
//! extent of one device. A fragment that can't be had at home is made of the same columns of others,
//! in steps, as many bytes at a time as a read may hold.
//!
//! ```text
//! bodies ──▶ stream ──▶ obtain ──┬──▶ home of the fragment         obtain: who gives the bytes, from
//!                                │                                 the cheapest to the last resort
//!                                ├──▶ recovering ──▶ gather        recovering: step by step, the next
//!                                │                     │           one ahead; gather: any d others
//!                                │                     └──▶ homes
//!                                └──▶ census ──▶ everybody         census: who has anything of it
//!
//!                stripe: where fragments may be, and what came of asking there
//! ```
//!
//! `check` finds out before the first byte leaves whether the rest of an extent can be had.
//!
//! Invariants:
//! * What comes out is the columns that were asked for, each byte once and in order, or ends in an
//!   error. Fragments are added up only if their devices found them to be what was written.
//! * Fragments away from home are sought only when those at home are too few.
//! * An extent of which too little is left is out of reach for now ([`ErrorKind::Unavailable`]) while
//!   anybody is silent who might have more of it, and lost ([`ErrorKind::Internal`]) when all have
//!   answered.
//! * Whoever drops a stream ends all that it asked for.
//!
//! [`ErrorKind::Unavailable`]: martlet_protocol::ErrorKind::Unavailable
//! [`ErrorKind::Internal`]: martlet_protocol::ErrorKind::Internal

mod census;
mod check;
mod gather;
mod obtain;
mod recovering;
mod stream;
mod stripe;

use martlet_erasure::{Code, Geometry};
use martlet_protocol::{Error, PolicyId, Result};

pub(crate) use check::check;
pub(crate) use stream::FragmentStream;

use crate::cluster::Cluster;

/// How an extent of `length` bytes lies in fragments; none where devices hold copies.
pub(crate) fn geometry(
    cluster: &Cluster,
    policy: PolicyId,
    length: u64,
) -> Result<Option<Geometry>> {
    let Some(code) = Code::of(cluster.data(policy)?.identity().redundancy)? else {
        return Ok(None);
    };
    let geometry = Geometry::new(code, length);
    let wrong =
        |error| Error::corrupt("a manifest names an extent that can't be").with_source(error);
    geometry.map(Some).map_err(wrong)
}
