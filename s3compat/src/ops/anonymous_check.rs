//! Access check of anonymous requests by the policies and lists of buckets, before bodies are read.

use futures::future::BoxFuture;
use martlet_proxy::{Error, ObjectStore};

use crate::access::{RequestTraits, Requester, actions};
use crate::authorization::BucketAccess;
use crate::http::AnonymousCheck;
use crate::messages;
use crate::operation::Operation;
use crate::refusal::Refusal;

/// Access check against the buckets of a store.
pub(crate) struct StoreAnonymousCheck(pub(crate) ObjectStore);

impl std::fmt::Debug for StoreAnonymousCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreAnonymousCheck")
    }
}

impl AnonymousCheck for StoreAnonymousCheck {
    fn check_anonymous<'a>(
        &'a self,
        operation: Operation,
        bucket: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let denied = || messages::ACCESS_DENIED.refusal();
            let name =
                bucket.filter(|_| operation != Operation::CreateBucket).ok_or_else(denied)?;
            let bucket = self.0.bucket(name).await.map_err(|error| match error {
                Error::NoSuchBucket => messages::NO_SUCH_BUCKET.refusal(),
                error => {
                    tracing::warn!(%error, "could not read the access rules of a bucket");
                    Refusal::try_again()
                }
            })?;
            let access = BucketAccess::of(&Requester::Anonymous, name, &bucket);
            // The body may name versions, so both cases are tried.
            let could = [false, true].into_iter().any(|names_version| {
                let case = RequestTraits { names_version, ..RequestTraits::default() };
                let actions = actions(operation, case);
                actions.first().is_some_and(|first| access.may_allow(&Requester::Anonymous, *first))
            });
            if could { Ok(()) } else { Err(denied()) }
        })
    }
}
