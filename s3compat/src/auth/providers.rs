//! Identity providers whose tokens may begin sessions, and the source of their keys.

use std::path::PathBuf;
use std::sync::Arc;

use super::fetched_keys::{FetchedKeys, JwksSource};
use super::jwks::{KeyFile, KeySet, TokenKey};

/// An identity provider whose tokens may begin sessions.
#[derive(Debug)]
pub struct IdentityProvider {
    pub(crate) issuer: String,
    pub(crate) audiences: Vec<String>,
    keys: ProviderKeys,
}

/// Source of a provider's keys.
#[derive(Debug)]
enum ProviderKeys {
    File(Arc<KeyFile>),
    Fetched(FetchedKeys),
}

impl IdentityProvider {
    /// Creates the provider `issuer`, for tokens with one of `audiences`. The file `jwks` has its
    /// public keys.
    pub fn new(issuer: String, audiences: Vec<String>, jwks: PathBuf) -> Self {
        let keys = ProviderKeys::File(Arc::new(KeyFile::new(jwks)));
        Self { issuer, audiences, keys }
    }

    /// Creates the provider `issuer`, for tokens with one of `audiences`. Its public keys are fetched
    /// from `source`.
    pub fn fetching(issuer: String, audiences: Vec<String>, source: Arc<dyn JwksSource>) -> Self {
        Self { issuer, audiences, keys: ProviderKeys::Fetched(FetchedKeys::new(source)) }
    }

    /// Returns the provider's keys, with the one that a token names if the provider has it.
    ///
    /// # Errors
    /// A sentence, if the keys can't be read.
    pub(crate) async fn keys(&self, wanted: &TokenKey, now_ms: u64) -> Result<Arc<KeySet>, String> {
        match &self.keys {
            ProviderKeys::Fetched(keys) => keys.keys(wanted, now_ms).await,
            ProviderKeys::File(file) => {
                let file = file.clone();
                let keys = tokio::task::spawn_blocking(move || file.keys()).await;
                keys.map_err(|error| error.to_string()).flatten()
            }
        }
    }
}
