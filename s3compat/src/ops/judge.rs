//! Access check of anonymous requests by the policies and lists of buckets, before bodies are read.

use futures::future::BoxFuture;
use martlet_proxy::{Error, ObjectStore};

use super::standing::Standing;
use crate::access::{Case, Requester, actions};
use crate::auth::Refusal;
use crate::door::HeadJudge;
use crate::sentences;

/// Access check against the buckets of a store.
pub(crate) struct ByHead(pub(crate) ObjectStore);

impl std::fmt::Debug for ByHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ByHead")
    }
}

impl HeadJudge for ByHead {
    fn check_anonymous<'a>(
        &'a self,
        operation: &'static str,
        bucket: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let denied = || sentences::ACCESS_DENIED.refusal();
            let name = bucket.filter(|_| operation != "CreateBucket").ok_or_else(denied)?;
            let bucket = self.0.bucket(name).await.map_err(|error| match error {
                Error::NoSuchBucket => sentences::NO_SUCH_BUCKET.refusal(),
                error => {
                    tracing::warn!(%error, "could not read the access rules of a bucket");
                    Refusal::try_again()
                }
            })?;
            let standing = Standing::of(&Requester::Anonymous, name, &bucket);
            // The body may name versions, so both cases are tried.
            let could = [false, true].into_iter().any(|names_version| {
                let case = Case { names_version, ..Case::default() };
                let actions = actions(operation, case).unwrap_or_default();
                actions
                    .first()
                    .is_some_and(|first| standing.could_open(&Requester::Anonymous, *first))
            });
            if could { Ok(()) } else { Err(denied()) }
        })
    }
}
