//! What is set about an object changes; its bytes stay where they are, and it stays as old as it was.

use martlet_protocol::entry::{Entry, Marks, Object};

use crate::api::{ObjectName, Written};
use crate::error::Result;
use crate::store::ObjectStore;

impl ObjectStore {
    /// Changes what is set about an object: `change` is asked about the object that is there, again
    /// whenever somebody else was faster, so that nobody's change is lost.
    ///
    /// # Errors
    /// As [`ObjectStore::set_tags`], and what `change` refuses with.
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
