//! Changes of an object's metadata documents. Its bytes and its modification time stay.

use martlet_protocol::entry::{Entry, Marks, Object};

use crate::api::{ObjectName, Written};
use crate::error::Result;
use crate::store::ObjectStore;

impl ObjectStore {
    /// Changes the metadata documents of an object by a ballot. `change` runs again after each
    /// concurrent write, so no change is lost.
    ///
    /// # Errors
    /// As [`ObjectStore::set_tags`], errors of `change`, and
    /// [`Error::AccessDenied`](crate::Error::AccessDenied) by the session's guard.
    pub async fn change_marks(
        &self,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        mut change: impl FnMut(&Object, &mut Marks) -> Result<()> + Send,
    ) -> Result<Written> {
        let inner = &self.inner();
        let mut change = |_: &Entry, object: &Object| {
            inner.admit(object)?;
            let mut changed = object.clone();
            change(object, &mut changed.attributes.marks)?;
            Ok(Some(changed))
        };
        inner.revise_object(bucket, name.into(), &mut change).await
    }
}
