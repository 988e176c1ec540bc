//! Flags that several roles share: S3 endpoint, upkeep workers, events.
//!
//! A field has the name of its setting, and so has its flag, but for lists, whose flags name one
//! item. Long names of rare settings are in `--help` and not in `-h`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

/// Flags of a role with an S3 endpoint.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub(crate) struct S3Args {
    /// Address for S3 clients [default: 127.0.0.1:9000]
    #[arg(long, value_name = "HOST:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) s3_address: Option<SocketAddr>,
    /// Domain of virtual-hosted buckets, as in bucket.NAME; repeatable [default: localhost]
    #[arg(long = "domain", value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) domains: Vec<String>,
    /// PEM file with the certificate chain of the S3 endpoint
    #[arg(long, value_name = "FILE", requires = "s3_tls_key")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) s3_tls_certificate: Option<PathBuf>,
    /// PEM file with the private key of the S3 endpoint
    #[arg(long, value_name = "FILE", requires = "s3_tls_certificate")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) s3_tls_key: Option<PathBuf>,
    /// Default storage policy for new buckets [default: the first policy]
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_policy: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    keys: S3KeyArgs,
    #[command(flatten)]
    #[serde(flatten)]
    requests: S3RequestArgs,
}

/// Flags for the keys of a role with an S3 endpoint.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Keys and signatures")]
struct S3KeyArgs {
    /// Access key of the root identity; a variable or the file has its secret
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    root_access_key: Option<String>,
    /// File with the master keys that seal secrets of access keys, one on each line
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    master_key_file: Option<PathBuf>,
    /// Seal secrets that are stored in clear [default: false]
    #[arg(long, value_name = "BOOL", hide_short_help = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    seal_secrets: Option<bool>,
    /// File with the master keys of object encryption, one on each line
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    sse_master_key_file: Option<PathBuf>,
    /// Accept signatures of version 2 [default: false]
    #[arg(long, value_name = "BOOL", hide_short_help = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    allow_signature_v2: Option<bool>,
    /// Issuer of the identity provider whose tokens begin sessions of roles
    #[arg(long, value_name = "URL", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    oidc_issuer: Option<String>,
    /// Accepted audience of the provider's tokens; repeatable
    #[arg(long = "oidc-audience", value_name = "NAME", hide_short_help = true)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    oidc_audiences: Vec<String>,
    /// JWKS file with the provider's signing keys [default: fetched from the provider]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    oidc_jwks_file: Option<PathBuf>,
    /// PEM file with the authorities of the provider's certificate [default: the system's]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    oidc_ca_file: Option<PathBuf>,
}

/// Flags for the requests of a role with an S3 endpoint.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Requests")]
struct S3RequestArgs {
    /// Maximum number of concurrent requests; further ones wait [default: 1024]
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_requests: Option<usize>,
    /// Maximum number of concurrent unsigned requests [default: an eighth of all]
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_anonymous_requests: Option<usize>,
    /// Maximum number of waiting requests [default: four times --max-requests]
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_waiting_requests: Option<usize>,
    /// Maximum time for which a request waits [default: 20s]
    #[arg(long, value_name = "SPAN", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    request_wait_timeout: Option<String>,
    /// Memory for documents of all requests [default: 64MiB]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    document_buffer: Option<String>,
    /// Timeout for receiving a document [default: 1m]
    #[arg(long, value_name = "SPAN", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    document_timeout: Option<String>,
    /// Memory for bodies on their way to devices [default: 256MiB]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    write_buffer: Option<String>,
    /// Memory that concurrent readers share; 0 for none [default: 256MiB]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    window_cache: Option<String>,
    /// File that gets a line for each request
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    access_log: Option<PathBuf>,
    /// Time in which log lines of a bucket are gathered [default: 1m]
    #[arg(long, value_name = "SPAN", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    bucket_log_interval: Option<String>,
}

/// Flags of a role that runs the upkeep workers.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Upkeep")]
pub(crate) struct UpkeepArgs {
    /// Age at which a tombstone is collected, at least 1h [default: 7d]
    #[arg(long, value_name = "SPAN", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    reclaim_age: Option<String>,
    /// Age at which an upload is aborted, at least 1h [default: never]
    #[arg(long, value_name = "SPAN", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    upload_age: Option<String>,
    /// Seconds of a day of lifecycle rules [default: 86400]
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    lifecycle_day_seconds: Option<u64>,
    /// Bytes per second that the audit reads [default: 20MiB]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    audit_rate: Option<String>,
    /// Maximum bytes per second of copied extents [default: as clients leave]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    replicate_rate: Option<String>,
}

/// Flags of a role whose requests or lifecycle rules change objects.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Events")]
pub(crate) struct EventArgs {
    /// Target of events; repeatable
    #[arg(long = "notification", value_name = "NAME=URL|FILE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notifications: Vec<String>,
    /// Bytes of events that wait on disk, for each target and tenant [default: 64MiB]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    notification_spool: Option<String>,
    /// Attempts to deliver an event to a webhook that fails [default: 100]
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_notification_attempts: Option<u32>,
    /// Attempts at an event that a webhook or broker refuses [default: 8]
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_notification_refusals: Option<u32>,
}
