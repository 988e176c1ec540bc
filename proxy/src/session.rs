//! The store as seen by one request.

use std::ops::Deref;
use std::sync::Arc;

use martlet_protocol::{AchievedLevel, Stamp};

use crate::consistency::{ConsistencyOptions, ReadAfter};
use crate::context::RequestContext;
use crate::encryption::{Encrypted, Keys};
use crate::guard::Guard;
use crate::store::ObjectStore;

/// An [`ObjectStore`] for one request, which records the consistency of its replies. Clones share
/// that record.
#[derive(Clone)]
pub struct Session(pub(crate) ObjectStore);

impl ObjectStore {
    /// The store for one request, with options of its own and a record of the consistency of its
    /// replies.
    pub fn session(&self, options: ConsistencyOptions) -> Session {
        Session(self.in_context(RequestContext::new(self.topology().cluster(), options)))
    }
}

impl Session {
    /// Consistency of the replies so far: the weakest of their parts.
    pub fn given(&self) -> AchievedLevel {
        self.0.context().given()
    }

    /// Token for a write at a key that was read or written in this session.
    pub fn token(&self, bucket: &str, key: &str, stamp: Stamp) -> ReadAfter {
        ReadAfter::new(bucket, key, stamp, self.given())
    }

    /// Returns this session with a guard on the objects that it reads.
    #[must_use]
    pub fn guarded(&self, guard: Arc<dyn Guard>) -> Self {
        Self(self.0.in_context(self.0.context().guarded(guard)))
    }

    /// Returns this session for reads that decide about access, as of the tags that a policy judges: at
    /// the bucket's level at least, and never from one replica alone (rule A4).
    #[must_use]
    pub fn deciding(&self) -> Self {
        Self(self.0.in_context(self.0.context().deciding()))
    }

    /// Sets the keys of this session's operations. Later calls have no effect.
    pub fn set_keys(&self, keys: Keys) {
        self.0.context().keys.set(keys);
    }

    /// Encryption of the object that was read or written; none if it isn't encrypted.
    pub fn encrypted(&self) -> Option<Encrypted> {
        self.0.context().keys.encrypted()
    }
}

impl Deref for Session {
    type Target = ObjectStore;

    fn deref(&self) -> &ObjectStore {
        &self.0
    }
}
