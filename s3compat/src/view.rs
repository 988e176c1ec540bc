//! The view of a bucket that a request names.

use std::sync::OnceLock;

use martlet_proxy::ViewedObject;

/// Request of the view, as the client sent it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Bucket as the client named it.
    pub(crate) bucket: String,
    /// Key as the client named it; empty for the bucket itself.
    pub(crate) key: String,
    /// Query as the client sent it.
    pub(crate) query: String,
    /// Object that the key stands for, once the access check has resolved it.
    pub(crate) resolved: OnceLock<ViewedObject>,
}
