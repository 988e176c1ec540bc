//! Target of a request on an object: the register, and the bucket.

use std::sync::Arc;

use martlet_protocol::backend::RegisterView;
use martlet_protocol::entry::{Bucket, Object, Value};
use martlet_protocol::{RegisterKey, WriteId};
use tokio::time::Instant;

use crate::context::RequestContext;
use crate::index::Intent;

/// Register of the object that a request names, and its bucket as last read.
pub(crate) struct ObjectTarget<'a> {
    pub(crate) context: &'a RequestContext,
    pub(crate) name: &'a str,
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) key: RegisterKey,
    /// A time at or before the start of the operation.
    pub(crate) began: Instant,
}

impl ObjectTarget<'_> {
    pub(crate) fn intent(&self, write_id: WriteId, commit_by_ms: u64) -> Intent<'_> {
        Intent {
            key: &self.key,
            write_id,
            generation: self.bucket.generation,
            commit_by_ms,
            level: self.context.level(&self.bucket),
            claim: None,
        }
    }
}

/// The object in a view, if it holds one.
pub(crate) fn object_of(view: &RegisterView) -> Option<&Object> {
    match &view.entry.as_ref()?.value {
        Value::Object(object) => Some(object),
        _ => None,
    }
}
