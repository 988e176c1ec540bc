//! Passes of the worker over the sets of all buckets.

use martlet_protocol::checkpoints::{BucketWithSets, SetCounts};

use super::requests::{Checkpoints, SetRange};
use super::rules::CheckpointRules;
use super::series::Series;
use super::set_store::{COMPANION_PREFIX, PARENT, SetName, parent_id};
use super::upkeep::Visit;
use crate::api::{DeleteConditions, ListObjects};
use crate::error::{Error, Result};

/// Sets in one run of the worker.
const SETS_AT_ONCE: usize = 20;
/// Companion buckets on one page.
const BUCKETS_AT_ONCE: usize = 1000;

impl Checkpoints<'_> {
    /// Looks after a run of sets, as the worker asks for.
    pub(crate) async fn look_after(
        self,
        companion: &str,
        after: Option<&str>,
    ) -> Result<(SetCounts, Option<String>)> {
        let sets = &self.committer.sets;
        let Some(id) = parent_id(companion) else { return Ok((SetCounts::default(), None)) };
        let Some(bucket_name) = sets.parent(companion).await? else {
            return Ok((SetCounts::default(), None));
        };
        let context = sets.context();
        let mut found = sets.catalog.bucket(&context, &bucket_name).await;
        if !matches!(&found, Ok(bucket) if bucket.id == id) {
            // The bucket may be newer than the cached one.
            sets.catalog.forget(&bucket_name);
            found = sets.catalog.bucket(&context, &bucket_name).await;
        }
        let bucket = match found {
            Ok(bucket) if bucket.id == id => bucket,
            // The register of a bucket that was not deleted is lost: its sets wait for an adoption.
            Ok(_) | Err(Error::NoSuchBucket) if !sets.catalog.fences.is_deleted(id).await? => {
                return Ok((SetCounts::default(), None));
            }
            Ok(_) | Err(Error::NoSuchBucket) => {
                return self
                    .delete_companion(companion)
                    .await
                    .map(|more| (SetCounts::default(), more.then(String::new)));
            }
            Err(error) => return Err(error),
        };
        let rules = CheckpointRules::of(&bucket)?;
        let range = SetRange { prefix: "", after, limit: SETS_AT_ONCE };
        let (names, more) = self.names(companion, range).await?;
        let rule_of = |set: &str| rules.as_ref().and_then(|rules| rules.of_set(set));
        let series_of = |set| Series::of(&bucket, rules.as_ref()?, set);
        self.committer.ranked.resume(id, after, after.and_then(series_of));
        let mut counts = SetCounts::default();
        for set in &names {
            if let (Some(rules), Some(series)) = (&rules, series_of(set))
                && self.committer.ranked.add(series, set)
            {
                match self.committer.retire(&bucket, &bucket_name, rules, set).await {
                    Ok(retired) => counts.done += retired,
                    Err(error) => {
                        tracing::debug!(set, %error, "leaving a series for a later pass");
                        counts.kept += 1;
                    }
                }
            }
            let rule = rule_of(set);
            let set = SetName::of(&bucket, &bucket_name, set);
            let visit = Visit { committer: self.committer, bucket: &bucket, rule, set };
            match Box::pin(visit.look_after()).await {
                Ok(more) => counts.add(&more),
                Err(error) => {
                    tracing::debug!(set = set.set, %error, "leaving a set for a later pass");
                    counts.kept += 1;
                }
            }
        }
        Ok((counts, names.last().filter(|_| more).cloned()))
    }

    /// Deletes a part of the companion of a bucket that is gone; returns true if more is left.
    async fn delete_companion(self, companion: &str) -> Result<bool> {
        let sets = &self.committer.sets;
        let context = sets.context();
        let list = ListObjects { limit: BUCKETS_AT_ONCE, ..ListObjects::default() };
        let page = sets.listings.list(&context, companion, list).await?;
        // The name of the parent goes last: it is what the next run needs.
        let rest = page.objects.iter().filter(|(key, _)| key != PARENT);
        let mut is_empty = true;
        for (key, _) in rest {
            is_empty = false;
            let any = DeleteConditions::default();
            Box::pin(sets.remover.delete(&context, companion, key, &any)).await?;
        }
        if !is_empty || page.next.is_some() {
            return Ok(true);
        }
        let any = DeleteConditions::default();
        Box::pin(sets.remover.delete(&context, companion, PARENT, &any)).await?;
        match self.buckets.delete(companion).await {
            Ok(()) | Err(Error::NoSuchBucket) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// All companion buckets.
    pub(crate) async fn companions(self) -> Result<Vec<BucketWithSets>> {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let (page, more) =
                self.buckets.list(COMPANION_PREFIX, after.as_deref(), BUCKETS_AT_ONCE).await?;
            after = page.last().map(|last| last.name.clone());
            found.extend(
                page.into_iter()
                    .map(|named| BucketWithSets { id: named.bucket.id, companion: named.name }),
            );
            if !more || after.is_none() {
                return Ok(found);
            }
        }
    }
}
