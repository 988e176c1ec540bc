//! Admin API of its own principals: keys with roles, and sessions.
//!
//! Keys are documents of accounts, read through the cache that access keys have too. A revoked key
//! is refused by every process with an S3 port after at most a second while a quorum replies, and
//! after at most a minute without one.

mod directory;
mod routes;

pub use self::directory::AccountDirectory;
pub use self::routes::routes;
