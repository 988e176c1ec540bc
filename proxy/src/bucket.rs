//! Buckets: registers of the root bucket, and their safe deletion (rule M2).
//!
//! ```text
//! (none) ──create──▶ Open ──close──▶ Closing ──found empty──▶ tombstone ──▶ purged
//!                     ▲                 │
//!                     └─────────────────┘ not empty, or its deleter is gone
//! ```

mod admin;
mod adopt;
mod backup;
mod cache;
mod catalog;
mod emptiness;
mod etags;
mod fence;
mod hint_keepers;
mod lock;
mod policy;
mod record;
mod replaced;
mod settings;
mod target;
mod versioning;

pub use self::admin::Buckets;
pub use self::adopt::{LostVersioning, adopt_bucket, settings_of_adopted};
pub(crate) use self::backup::{BucketRecords, WantedBucket};
pub(crate) use self::catalog::BucketCatalog;
pub use self::etags::set_etag_kind;
pub use self::lock::lock_from_the_beginning;
pub(crate) use self::lock::lock_of;
pub(crate) use self::record::{again_if_replaced, busy, check_key};
pub(crate) use self::target::{ObjectTarget, object_of};
