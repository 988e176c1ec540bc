//! Rewrapping of the data keys of a bucket by the first master key.
//!
//! Nothing is stored between runs, so an interrupted run is started again, on any proxy: data keys
//! that the first master key wraps are skipped. Bytes and data keys don't change. Only the document
//! in the entry does, by a ballot like any change of metadata.
//!
//! * [`run`]: a run over a whole bucket; [`state`]: its limits, progress and end.
//! * [`page`]: one page of versions, without undoing clients' writes.
//! * [`document`]: the wrapped data key in an entry.

mod document;
mod page;
mod run;
mod state;

use self::document::is_outdated;
pub use self::state::{Rewrap, RewrapOptions, RewrapProgress};
use crate::api::ListUploads;
use crate::consistency::ConsistencyOptions;
use crate::encryption::{Locked, ObjectAddress};
use crate::error::Result;
use crate::store::ObjectStore;

/// Uploads on one page.
const UPLOADS: usize = 1000;

/// Data keys of the objects and uploads of a store.
#[derive(Clone, Copy, Debug)]
pub struct DataKeys<'a> {
    store: &'a ObjectStore,
}

impl ObjectStore {
    /// Data keys of encrypted objects and uploads.
    pub fn data_keys(&self) -> DataKeys<'_> {
        DataKeys { store: self }
    }
}

impl DataKeys<'_> {
    /// Returns true if this process has a master key to wrap data keys with.
    pub fn can_wrap(self) -> bool {
        self.store.services.vault.wrapping().is_some()
    }

    /// Number of a bucket's open uploads whose data key a master key other than the first wraps.
    /// Objects completed from them have that key too.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`](crate::Error::NoSuchBucket); a failed listing.
    pub async fn outdated_uploads(self, bucket: &str) -> Result<u64> {
        let session = self.store.session(ConsistencyOptions::STRICT);
        let home = session.bucket(bucket).await?.id;
        let (mut count, mut after) = (0, Some((None, None)));
        while let Some((after_key, after_id)) = after {
            let list = ListUploads { after_key, after_id, limit: UPLOADS, ..Default::default() };
            let page = session.uploads().list(bucket, list).await?;
            for upload in page.uploads {
                let address = ObjectAddress { bucket: home, key: &upload.key };
                let locked = Locked::of(&upload.marks, address)?;
                count += u64::from(is_outdated(&self.store.services.vault, locked.as_ref()));
            }
            after = page.next.map(|(key, id)| (Some(key), id));
        }
        Ok(count)
    }
}
