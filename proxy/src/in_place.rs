//! Reads in place: where the bytes of objects are, for clients that read them without a proxy.

use martlet_protocol::entry::Object;

use crate::api::{ExtentPlace, ObjectName, ReadConditions, Selection};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::located::Located;
use crate::store::ObjectStore;

/// Places of objects' bytes.
#[derive(Clone, Copy)]
pub struct InPlace<'a> {
    store: &'a ObjectStore,
}

impl ObjectStore {
    /// Places of objects' bytes.
    pub fn in_place(&self) -> InPlace<'_> {
        InPlace { store: self }
    }
}

impl InPlace<'_> {
    /// Locations of an object's bytes for reads in place: its extents, or their data fragments.
    /// Inline objects have none, and lost or unreachable fragments are left out.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`], [`Error::InvalidRequest`] for an encrypted object, or an extent that
    /// no device has.
    pub async fn places(self, bucket: &str, key: &str) -> Result<(Object, Vec<ExtentPlace>)> {
        self.store.services.reader.places(&self.store.context(), bucket, key).await
    }

    /// Places of a selection of an object's bytes, for clients that read them in place.
    ///
    /// # Errors
    /// As [`ObjectStore::get`].
    pub async fn locate(
        self,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        selection: Selection,
        conditions: &ReadConditions,
    ) -> Result<Located> {
        let (reader, context) = (&self.store.services.reader, self.store.context());
        reader.locate(&context, bucket, name.into(), selection, conditions).await
    }

    /// Returns true if a node of the cluster has a data port.
    pub fn has_data_ports(self) -> bool {
        let cluster = self.store.topology().cluster();
        let mut devices = cluster.policies().flat_map(martlet_ring::Ring::devices);
        devices.any(|device| self.store.topology().data_port(&device.node.name).is_some())
    }
}
