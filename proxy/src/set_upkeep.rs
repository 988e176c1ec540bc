//! Upkeep of checkpoint sets, for the worker that goes through buckets.

use async_trait::async_trait;
use martlet_protocol::Result;
use martlet_protocol::checkpoints::{BucketWithSets, SetCounts, SetUpkeep};

use crate::consistency::ConsistencyOptions;
use crate::error::Error;
use crate::store::ObjectStore;

#[async_trait]
impl SetUpkeep for ObjectStore {
    async fn buckets_with_sets(&self) -> Result<Vec<BucketWithSets>> {
        let session = self.session(ConsistencyOptions::STRICT);
        session.checkpoints().companions().await.map_err(Error::into_backend)
    }

    async fn look_after(
        &self,
        companion: &str,
        after: Option<&str>,
    ) -> Result<(SetCounts, Option<String>)> {
        let session = self.session(ConsistencyOptions::STRICT);
        let looked = Box::pin(session.checkpoints().look_after(companion, after)).await;
        looked.map_err(Error::into_backend)
    }
}
