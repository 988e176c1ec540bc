//! Admin API of processes with an S3 port: tenants, buckets, quotas and extents of objects.
//!
//! ```text
//! martlet admin ──HTTP, JSON──▶ admin port ── gate ──▶ routes of this crate ──▶ ObjectStore
//! ```
//!
//! * [`accounts`]: tenants, users, roles and access keys, with their quotas and rates.
//! * [`backup`]: backup and restore of accounts and of buckets' settings.
//! * [`buckets`]: settings of buckets beyond S3's.
//! * `index`: hold on collection, and buckets whose register is lost, as part of the routes of jobs.
//! * [`jobs`]: censuses, moves of buckets to another storage policy, rewraps of data keys by a new
//!   master key, and the rebuild of lost index partitions, as jobs of the process.
//! * [`objects`]: extents of an object, with the devices and files that hold them.
//! * [`policies`]: storage policies of the cluster.
//! * [`principals`]: keys and sessions of the admin API itself, and the accounts that its gate reads.
//! * [`quarantine`]: items in quarantine of a device.
//! * [`ring_builder`]: edits, plans and rebalances of ring builders, which belong to requests.
//! * `quotas`: quotas and usage of tenants and buckets, as part of the routes of accounts.
//! * `api`: parameters, bodies, pages and refusals that the routes share.
//!
//! Each module returns [`ApiRoutes`](martlet_serving::api::ApiRoutes): routes with their description.
//! A description has the rule of the route's access, which the gate of
//! [`Operator`](martlet_serving::operator::Operator) applies. So the routes make no access checks of
//! their own.
//!
//! Messages are those of [`martlet_admin_api`]. Rules about accounts, quotas and policies belong to
//! [`martlet_proxy`] and [`martlet_s3compat`]: a route reads a request, calls the object layer, and
//! turns the outcome into a reply. Errors are sentences for people, with a status that scripts can
//! test.
//!
//! Long passes over a bucket don't hold a request: they run as tasks whose progress is queried.

pub mod accounts;
mod api;
pub mod backup;
pub mod buckets;
mod index;
pub mod jobs;
pub mod objects;
pub mod policies;
pub mod principals;
pub mod quarantine;
mod quotas;
pub mod ring_builder;
