//! Place of a bucket, as the caller names it.

use std::path::PathBuf;

use super::credentials::CredentialSource;
use super::endpoint::Addressing;

/// Bucket at an endpoint, with the credentials for it.
#[derive(Clone, Debug)]
pub struct S3Location {
    /// `http://host:port` or `https://host:port`.
    pub endpoint: String,
    /// Bucket.
    pub bucket: String,
    /// Region of signatures.
    pub region: String,
    /// Place of the bucket's name in URLs.
    pub addressing: Addressing,
    /// File with the authorities of the endpoint's certificate; `None` for the system's.
    pub ca_file: Option<PathBuf>,
    /// Place of the credentials.
    pub credentials: CredentialSource,
}
