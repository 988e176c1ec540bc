//! Register of a bucket, and checks of names and of replaced buckets.

use martlet_protocol::backend::RegisterView;
use martlet_protocol::entry::{Bucket, Value};
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::{BucketId, RegisterKey, limits};

use crate::error::{Error, Result};
use crate::index::{Proposal, Step};

/// Register of a bucket.
pub(crate) fn root(name: &str) -> RegisterKey {
    RegisterKey::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, name)
}

/// The bucket in a view, if it holds one.
pub(crate) fn bucket_of(view: &RegisterView) -> Option<&Bucket> {
    match &view.entry.as_ref()?.value {
        Value::Bucket(bucket) => Some(bucket),
        _ => None,
    }
}

/// The step of a ballot that writes a bucket.
pub(super) fn write(bucket: &Bucket) -> Step {
    Step::Write(Proposal::of(Value::Bucket(Box::new(bucket.clone()))))
}

/// The error of a bucket that is being deleted or changed.
pub(crate) fn busy() -> Error {
    martlet_protocol::Error::unavailable("the bucket is being deleted or changed").into()
}

/// Refuses invalid keys. NUL would make the end of a key ambiguous in an upload's register name.
pub(crate) fn check_key(key: &str) -> Result<()> {
    if key.is_empty() || key.len() > limits::KEY_BYTES_MAX || key.contains('\0') {
        let max = limits::KEY_BYTES_MAX;
        return Err(Error::InvalidRequest(format!("a key must have 1 to {max} bytes without NUL")));
    }
    Ok(())
}

/// Returns true for errors that report an absent object, version or upload.
pub(super) fn is_absence(error: &Error) -> bool {
    matches!(error, Error::NoSuchKey | Error::NoSuchVersion | Error::NoSuchUpload)
}

/// Runs an operation; runs it again if its bucket was replaced.
pub(crate) async fn again_if_replaced<T, F: Future<Output = Result<T>>>(
    mut operation: impl FnMut() -> F,
) -> Result<T> {
    match operation().await {
        Err(Error::BucketReplaced) => operation().await,
        outcome => outcome,
    }
}

/// Refuses a bucket that replaced `before`. Permissions were checked against `before`. So an
/// automatic retry needs an equal owner and equal settings.
pub(super) fn check_same(before: &Bucket, now: &Bucket) -> Result<()> {
    if before.id == now.id {
        return Ok(());
    }
    let is_alike = before.owner == now.owner && before.settings == now.settings;
    Err(if is_alike { Error::BucketReplaced } else { busy() })
}
