//! The assembled service over devices in memory, with signed requests as clients send them, and
//! without sockets.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly anywhere")]

mod access;
mod acls;
mod bodies;
mod buckets;
mod checksums;
mod consistency;
mod copies;
mod encryption;
mod etags;
mod listings;
mod locate;
mod locks;
mod multipart;
mod object_rights;
mod objects;
mod ownership;
mod policies;
mod retention;
mod revoked;
mod roles;
mod tags;
mod tenants;
mod user_policies;
mod versions;
mod world;
