//! Facts about a reply.

use std::sync::Arc;

use super::effects::Effects;
use crate::logging::ReplyRequester;
use crate::operation::Operation;
use crate::target::RequestTarget;

/// Facts about a reply, among its extensions.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplyInfo {
    /// None if the request did not reach its operation.
    pub(crate) operation: Option<Operation>,
    /// None if the request did not reach its operation.
    pub(crate) requester: Option<ReplyRequester>,
    /// Target in the request's URI. None if the request did not reach its operation, and for forms.
    pub(crate) target: Option<Arc<RequestTarget>>,
    /// Error code in the reply.
    pub(crate) error: Option<Box<str>>,
    pub(crate) effects: Effects,
}
