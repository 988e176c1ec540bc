//! Settings of authentication.

/// Default region of buckets. S3 writes it as an empty location.
pub const UNNAMED_REGION: &str = "us-east-1";

/// Settings of authentication.
#[derive(Clone, Debug)]
pub struct AuthConfig {
    /// Regions that a signature may name. Errors and buckets use the first one.
    pub regions: Vec<String>,
    /// True if SigV2 is accepted, in headers, links and forms. It signs only a small part of a
    /// request.
    pub allow_v2: bool,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self { regions: vec![UNNAMED_REGION.to_owned()], allow_v2: false }
    }
}
