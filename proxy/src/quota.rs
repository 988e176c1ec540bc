//! Quotas: limits on the usage of an owner's buckets, checked before a body is read.
//!
//! ```text
//! PUT ─▶ charge ─ counted + written here since + under way + requested ≤ quota? ─▶ body ─▶ entry
//!           │                                                                        │
//!           └── no: QuotaExceeded                            returned, or written here ┘
//! ```
//!
//! * [`client`]: quotas of owners, looked up and charged; [`account`]: one owner.
//! * [`ledger`]: usage known to one proxy; pure.
//! * [`count`]: counts of buckets, for the usage worker; [`rows`]: those by the rows of devices.
//! * [`charge`]: usage requested by a write; [`set`]: quotas of buckets.
//!
//! The usage of buckets is counted periodically and stored in documents beside the accounts. A
//! proxy adds what it has written since the start of the count. Overwritten and deleted bytes stay
//! in that sum until the next count. So a quota is exceeded at most by what other proxies have
//! written since the last count. If this proxy was restarted since, its writes before that add to
//! the excess. Before the first count, only this proxy's writes count. Reads and deletes are never
//! checked.
//!
//! Invariants:
//! * Buckets without a quota, of owners without one, cost no look-up of a count.
//! * A cached quota is at most [`account_cache_ms`](crate::StoreOptions::account_cache_ms) old
//!   while a quorum replies. Otherwise the last known quota applies: quotas cost no availability.
//! * A charge under way is always returned, whatever the result of the write.

mod account;
mod charge;
mod client;
mod count;
pub(crate) mod exceeded;
mod ledger;
mod rows;
mod set;

pub(crate) use self::charge::{Charge, RequestedUsage};
pub(crate) use self::client::Quotas;
pub use self::client::is_of_tenant;
pub use self::count::CountProgress;
pub use self::exceeded::{Exceeded, Whose};
