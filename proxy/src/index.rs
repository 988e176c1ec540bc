//! Registers: quorum reads, plain writes and ballots (rules R3, R4, R5, R7).
//!
//! Replies that agree need no second round. Replies that differ are settled before the caller
//! receives a result, so that the winner is on a quorum. No operation waits for a dispensable
//! replica, and every call has a timeout.
//!
//! The members of a register decide about it. They are its primaries; while replicas move, they are
//! both the previous and the next holders. Each set decides by a quorum of its own (rule P2). Every
//! request names its term. A device at a later term refuses it; then the proxy stores that term,
//! places the register anew, and repeats requests without a quorum (rule P1).
//!
//! * [`client`]: the register client. [`read`]: reads at a level; [`settle`]: settlement of
//!   differing replies; [`degraded`]: operation without a quorum of primaries;
//!   [`read_after_token`]: reads with a read-after token; [`write`]: plain writes.
//! * [`compare_and_set`]: ballots; [`judge`]: decisions in the middle of a ballot;
//!   [`paired_write`]: writes next to a ballot's register.
//! * [`replicas`]: calls to the devices of a register; [`replica_set`]: these devices;
//!   [`calls`]: concurrent calls with their time limits; [`member_queries`]: order of a read's
//!   requests.
//! * [`intent`]: parameters and results of a write; [`views`]: replies to a read;
//!   [`contended`]: keys with recent conflicts.
//! * [`replica_votes`]: replies of replicas to one write, counted.

mod calls;
mod client;
mod compare_and_set;
mod contended;
mod degraded;
mod intent;
mod judge;
mod member_queries;
mod paired_write;
mod read;
mod read_after_token;
mod replica_set;
mod replica_votes;
mod replicas;
mod settle;
mod views;
mod write;

pub(crate) use self::calls::{Calls, call_in_time};
pub(crate) use self::client::RegisterClient;
pub(crate) use self::intent::{Intent, Proposal, Step, WriteError, WriteOutcome};
pub(crate) use self::judge::{Judge, Round};
pub(crate) use self::replica_set::{ReplicaSet, Role};
pub(crate) use self::replicas::ReplicaClient;
pub(crate) use self::views::weightier;
