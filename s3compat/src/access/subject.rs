//! Subjects: principals of requests, by the names and ids that policies match.
//!
//! An identity carries policies, and policies match identities. Policies receive only a subject, so
//! that they don't depend on identities.

/// Principal of a request, as policies match it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject<'a> {
    /// An unsigned request.
    Anonymous,
    /// An account, or a user or session of one.
    User(UserNames<'a>),
    /// The store itself, when it delivers the access logs of buckets.
    LogDelivery,
}

/// Names and ids of an account, or of a user or session of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserNames<'a> {
    /// Name of the account.
    pub(super) account: &'a str,
    /// Canonical id of the account.
    pub(super) canonical_id: &'a str,
    /// User within the account; the account's own name for the account itself.
    pub(super) user: &'a str,
    /// Id that the user got at its creation.
    pub(super) user_id: Option<&'a str>,
    pub(super) session: Option<SessionNames<'a>>,
}

/// Names and ids of a session of a role.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionNames<'a> {
    /// Name of the role.
    pub(super) role: &'a str,
    /// Id that the role got at its creation.
    pub(super) role_id: &'a str,
    /// Name of the session.
    pub(super) name: &'a str,
}

impl UserNames<'_> {
    /// Returns true for an account itself, false for its users.
    pub(super) fn is_account(&self) -> bool {
        self.account == self.user
    }
}
