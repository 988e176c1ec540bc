//! Question for one policy.

use super::action::Action;
use super::context::Context;
use super::subject::Subject;

/// Beginning of the ARN of a resource of S3.
pub(super) const ARN: &str = "arn:aws:s3:::";
/// Beginning of the ARN of an account.
pub(super) const ACCOUNT_ARN: &str = "arn:aws:iam::";

/// ARN of an object, or of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceArn {
    text: String,
    /// Length in bytes of the bucket's ARN.
    bucket_end: usize,
}

impl ResourceArn {
    /// ARN of a bucket, or of the object with this key.
    pub(crate) fn of(bucket: &str, key: Option<&str>) -> Self {
        let text = match key {
            Some(key) => [ARN, bucket, "/", key].concat(),
            None => [ARN, bucket].concat(),
        };
        Self { text, bucket_end: ARN.len() + bucket.len() }
    }

    /// The ARN.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// ARN of the bucket.
    pub(crate) fn bucket(&self) -> &str {
        &self.text[..self.bucket_end]
    }
}

/// A request for one policy to judge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyQuestion<'a> {
    /// Principal of the request.
    pub(super) subject: Subject<'a>,
    /// Requested action.
    pub(super) action: Action,
    /// ARN of the resource of the action.
    pub(super) arn: &'a str,
    /// True if the action is about an object that the request makes.
    pub(super) is_new: bool,
    /// Condition keys of the request.
    pub(super) context: &'a Context,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arn_of_an_object_begins_with_its_buckets() {
        let of_object = ResourceArn::of("bkt", Some("a/ü"));
        assert_eq!(of_object.as_str(), "arn:aws:s3:::bkt/a/ü");
        let of_bucket = ResourceArn::of("bkt", None);
        assert_eq!(of_bucket.as_str(), "arn:aws:s3:::bkt");
        assert_eq!(
            (of_object.bucket(), of_bucket.bucket()),
            (of_bucket.as_str(), of_bucket.as_str())
        );
    }
}
