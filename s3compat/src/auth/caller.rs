//! Claimed signer of a request, and the context of the check of its signature.

use std::net::IpAddr;
use std::sync::Arc;

use super::access_keys::AccessKeys;
use super::credential::Credential;
use super::signature::unknown_key;
use crate::date::Timestamp;
use crate::refusal::Refusal;

/// Claimed signer of a request, before authentication, and the client's address.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Credential of the named access key, unless the key is fixed.
    pub(crate) credential: Option<Arc<Credential>>,
    /// True if the credential comes from a session's token.
    pub(crate) is_session: bool,
    /// Address of the client, if known.
    pub(crate) peer: Option<IpAddr>,
}

/// Context of a signature check.
pub(super) struct CheckContext<'a> {
    pub(super) keys: &'a AccessKeys,
    pub(super) caller: &'a Caller,
    pub(super) service: &'static str,
    pub(super) regions: &'a [String],
    pub(super) now: Timestamp,
}

impl CheckContext<'_> {
    /// Credential of an access key.
    pub(super) fn credential(&self, access_key: &str) -> Result<&Arc<Credential>, Refusal> {
        let called = || self.caller.credential.as_ref().filter(|it| it.access_key() == access_key);
        let known = self.keys.lookup(access_key).or_else(called);
        known.ok_or_else(|| unknown_key(access_key))
    }
}
