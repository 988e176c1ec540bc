//! Checks of checkpoint sets and of the view (rules S1 to S7).
//!
//! * [`operation`]: requests of clients on sets and on the view, with their times and replies.
//! * [`generations`]: the generations that replies show, by their objects.
//! * [`manifests`]: each generation is whole, never changes, and is of the moment of its marker.
//! * [`reads`]: each read of the view is of one generation that may be the newest at that time; none
//!   is lost that was answered `committed`; none comes back that was withdrawn.
//!
//! Not verified: the bucket itself (see [`super::check`]); bytes; generations that no client listed, of
//! which only the absence of violations in other reads is known; the order of savers that write at
//! once; order between sets; holds of a rule other than `keep`. Reads without a reply prove nothing.

mod generations;
mod manifests;
mod operation;
mod reads;

pub use self::operation::{
    Objects, SetCall, SetHistory, SetOperation, SetReply, SetRules, SetViolation,
};

use self::generations::Generations;
use super::history::History;

/// Checks all requests on sets, beside the requests on the bucket's objects. Deletes by retention
/// belong to the latter, as deletes of unknown outcome.
pub fn check(sets: &SetHistory, bucket: &History) -> Result<(), SetViolation> {
    operation::none_gone(sets)?;
    let generations = Generations::of(sets);
    manifests::check(&generations, bucket)?;
    reads::check(&generations, bucket)
}

#[cfg(test)]
mod tests;
