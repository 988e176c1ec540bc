//! State of one operation, or of a session's operations.

use std::sync::Arc;

use martlet_protocol::entry::{Bucket, Object};
use martlet_protocol::{AchievedLevel, Level};
use martlet_topology::{Cluster, Topology};
use parking_lot::Mutex;

use crate::consistency::{ConsistencyOptions, deciding_level};
use crate::encryption::RequestKeys;
use crate::error::{Error, Result};
use crate::guard::Guard;

/// Parameters of a request, and the consistency of its replies.
#[derive(Clone)]
pub(crate) struct RequestContext {
    /// The rings of its start.
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) consistency: ConsistencyOptions,
    /// Encryption keys of the request, and the encryption to report.
    pub(crate) keys: Arc<RequestKeys>,
    /// Access check of the objects that it reads.
    guard: Option<Arc<dyn Guard>>,
    /// True if its reads decide about access.
    is_deciding: bool,
    given: Arc<Mutex<AchievedLevel>>,
}

/// Source of the contexts of operations: that of a session, or a new one for each operation.
#[derive(Clone, Copy)]
pub(crate) struct ContextSource<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) session: Option<&'a Arc<RequestContext>>,
}

impl ContextSource<'_> {
    pub(crate) fn context(self) -> Arc<RequestContext> {
        match self.session {
            Some(context) => context.clone(),
            None => Arc::new(RequestContext::new(
                self.topology.cluster(),
                ConsistencyOptions::default(),
            )),
        }
    }
}

impl RequestContext {
    pub(crate) fn new(cluster: Arc<Cluster>, consistency: ConsistencyOptions) -> Self {
        let given = Arc::new(Mutex::new(AchievedLevel::Quorum));
        let keys = Arc::default();
        Self { cluster, consistency, keys, guard: None, is_deciding: false, given }
    }

    /// This context with a guard. Both record the consistency of their replies together.
    pub(crate) fn guarded(&self, guard: Arc<dyn Guard>) -> Self {
        Self { guard: Some(guard), ..self.clone() }
    }

    /// This context for reads that decide about access. Both record the consistency of their replies
    /// together.
    pub(crate) fn deciding(&self) -> Self {
        Self { is_deciding: true, ..self.clone() }
    }

    /// Level of an operation in a bucket.
    pub(crate) fn level(&self, bucket: &Bucket) -> Level {
        if self.is_deciding {
            return self.deciding_level(bucket);
        }
        self.consistency.level.unwrap_or(bucket.consistency)
    }

    /// Level of reads in a bucket that decide about access.
    pub(crate) fn deciding_level(&self, bucket: &Bucket) -> Level {
        deciding_level(self.consistency.level, bucket.consistency)
    }

    /// Level of reads of buckets: their policies, owners and settings decide about access.
    pub(crate) fn bucket_level(&self) -> Level {
        deciding_level(self.consistency.level, Level::default())
    }

    /// Records the consistency of a part of the operation: the weakest part counts.
    pub(crate) fn note(&self, given: AchievedLevel) {
        if given > AchievedLevel::Quorum {
            let mut worst = self.given.lock();
            *worst = given.max(*worst);
        }
    }

    /// Consistency of the replies so far.
    pub(crate) fn given(&self) -> AchievedLevel {
        *self.given.lock()
    }

    /// Returns true if a guard judges the objects that are read.
    pub(crate) fn has_guard(&self) -> bool {
        self.guard.is_some()
    }

    /// Returns true if an object that was read below the deciding level may be served: no guard judges
    /// it, or the guard decides alike about every later state.
    pub(crate) fn trusts(&self, object: &Object) -> bool {
        self.guard.as_ref().is_none_or(|guard| guard.trusts(object))
    }

    /// Refuses objects that the guard doesn't admit.
    pub(crate) fn admit(&self, object: &Object) -> Result<()> {
        match &self.guard {
            Some(guard) if !guard.admits(object) => Err(Error::AccessDenied),
            _ => Ok(()),
        }
    }
}
