//! Preparation and cleanup: the bucket and the objects that a run needs.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::stream::{self, StreamExt, TryStreamExt};

use super::args::BenchArgs;
use super::connection::{Connection, RequestOutcome};
use super::error::{BenchError, BenchResult};
use super::plan::{BenchRequest, prepared_key};
use super::requests::Requests;
use super::stage::StageProgress;

/// Number of concurrent requests of preparation and cleanup. A preparation uses the run's
/// concurrency if that is higher.
const STAGE_CONCURRENCY: usize = 16;
/// Maximum number of keys in one DeleteObjects request, by S3's limit.
const DELETE_KEYS_MAX: usize = 1000;

/// Prepares a run and cleans up after it.
pub(super) struct Preparation {
    requests: Requests,
    prefix: String,
    objects: u64,
    concurrency: usize,
    bucket_made: AtomicBool,
    json: bool,
}

impl Preparation {
    pub(super) fn new(args: &BenchArgs, requests: &Requests) -> Self {
        Self {
            requests: requests.signing_headers(),
            prefix: args.prefix.clone(),
            objects: args.objects_prepared(),
            concurrency: args.concurrency.max(STAGE_CONCURRENCY),
            bucket_made: AtomicBool::new(false),
            json: args.json,
        }
    }

    /// Makes the bucket and its objects. An existing bucket of this user is kept.
    pub(super) async fn prepare(&self) -> BenchResult<()> {
        self.ensure_bucket().await?;
        let progress = &StageProgress::begin("written", self.objects, self.json);
        stream::iter(0..self.concurrency)
            .map(|first| self.write_objects(first, progress))
            .buffer_unordered(self.concurrency)
            .try_collect()
            .await
    }

    /// Makes the bucket if there is none. In us-east-1 S3 answers 200 to its owner's second creation
    /// of a bucket, so the reply of a creation doesn't show which run made the bucket.
    async fn ensure_bucket(&self) -> BenchResult<()> {
        match self.send(&BenchRequest::List).await {
            Ok(()) => return Ok(()),
            Err(code) if code == "NoSuchBucket" => {}
            Err(code) => return Err(failed("list the bucket", &code)),
        }
        match self.send(&BenchRequest::MakeBucket).await {
            Ok(()) => self.bucket_made.store(true, Ordering::Relaxed),
            Err(code) if code == "BucketAlreadyOwnedByYou" => {}
            Err(code) => return Err(failed("make the bucket", &code)),
        }
        Ok(())
    }

    /// Writes every object whose number leaves the remainder `first`, by one connection.
    async fn write_objects(&self, first: usize, progress: &StageProgress) -> BenchResult<()> {
        let mut requests = self.requests.clone();
        let mut connection = Connection::new(&requests.endpoint);
        for index in (first as u64..self.objects).step_by(self.concurrency) {
            let call = BenchRequest::Put { key: prepared_key(&self.prefix, index) };
            answered(connection.send(requests.request(&call)).await)
                .map_err(|code| failed("write an object", &code))?;
            progress.advance(1);
        }
        Ok(())
    }

    /// Removes the prepared objects, the objects that the run made, and the bucket if this stage
    /// made it.
    pub(super) async fn clean(&self, made: &[String]) -> BenchResult<()> {
        let prepared = (0..self.objects).map(|index| prepared_key(&self.prefix, index));
        let keys: Vec<_> = prepared.chain(made.iter().cloned()).collect();
        let progress = &StageProgress::begin("deleted", keys.len() as u64, self.json);
        stream::iter(keys.chunks(DELETE_KEYS_MAX))
            .map(|keys| async move {
                let call = BenchRequest::DeleteMany { keys: keys.to_vec() };
                self.send(&call).await.map_err(|code| failed("delete the objects", &code))?;
                progress.advance(keys.len() as u64);
                Ok::<_, BenchError>(())
            })
            .buffer_unordered(STAGE_CONCURRENCY)
            .try_collect::<()>()
            .await?;
        if self.bucket_made.load(Ordering::Relaxed) {
            let removed = self.send(&BenchRequest::RemoveBucket).await;
            removed.map_err(|code| failed("remove the bucket", &code))?;
        }
        Ok(())
    }

    async fn send(&self, call: &BenchRequest) -> Result<(), String> {
        let mut requests = self.requests.clone();
        answered(Connection::new(&requests.endpoint).send(requests.request(call)).await)
    }
}

/// Returns the code of a failed request.
fn answered(outcome: RequestOutcome) -> Result<(), String> {
    match outcome {
        RequestOutcome::Answered(_) => Ok(()),
        RequestOutcome::Refused(code) | RequestOutcome::Broken(code) => Err(code),
    }
}

fn failed(what: &str, code: &str) -> BenchError {
    BenchError::new(format_args!("cannot {what}: {code}"))
}
