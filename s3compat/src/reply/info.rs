//! Facts about a reply.

use super::effects::Effects;
use crate::logging::ReplyRequester;
use crate::operation::Operation;

/// Facts about a reply, among its extensions.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplyInfo {
    /// None if the request did not reach its operation.
    pub(crate) operation: Option<Operation>,
    /// None if the request did not reach its operation.
    pub(crate) requester: Option<ReplyRequester>,
    /// Error code in the reply.
    pub(crate) error: Option<Box<str>>,
    pub(crate) effects: Effects,
}
