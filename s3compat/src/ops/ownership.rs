//! Public access block and ownership controls of a bucket: `GetPublicAccessBlock`,
//! `PutPublicAccessBlock`, `DeletePublicAccessBlock`, `GetBucketOwnershipControls`,
//! `PutBucketOwnershipControls`, `DeleteBucketOwnershipControls`.

use http::StatusCode;
use martlet_protocol::{Setting, Settings};
use s3s::S3Result;
use s3s::dto::{
    ObjectOwnership, OwnershipControls, OwnershipControlsRule, PublicAccessBlockConfiguration,
};

use super::operations::Operations;
use super::settings::missing;
use crate::authorization::{AclSettings, bucket_has_list};
use crate::errors::s3_error;
use crate::messages;
use crate::reply::Reply;
use crate::request::OperationRequest;
use crate::settings::to_document;

/// Sets the absent fields of a public access block to false.
pub(super) fn complete(block: &PublicAccessBlockConfiguration) -> PublicAccessBlockConfiguration {
    PublicAccessBlockConfiguration {
        block_public_acls: Some(block.block_public_acls.unwrap_or(false)),
        block_public_policy: Some(block.block_public_policy.unwrap_or(false)),
        ignore_public_acls: Some(block.ignore_public_acls.unwrap_or(false)),
        restrict_public_buckets: Some(block.restrict_public_buckets.unwrap_or(false)),
    }
}

/// Validates ownership controls, which must have exactly one rule.
pub(super) fn one_rule(controls: &OwnershipControls) -> S3Result<()> {
    let [OwnershipControlsRule { object_ownership }] = &controls.rules[..] else {
        return Err(messages::MALFORMED_XML.error());
    };
    check_ownership(object_ownership)
}

/// Refuses unknown kinds of ownership.
pub(super) fn check_ownership(ownership: &ObjectOwnership) -> S3Result<()> {
    match ownership.as_str() {
        ObjectOwnership::BUCKET_OWNER_ENFORCED
        | ObjectOwnership::BUCKET_OWNER_PREFERRED
        | ObjectOwnership::OBJECT_WRITER => Ok(()),
        _ => Err(messages::MALFORMED_XML.error()),
    }
}

impl Operations {
    pub(super) async fn get_public_access_block(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let block: Option<PublicAccessBlockConfiguration> =
            self.setting(request.bucket(), Setting::PublicAccessBlock).await?;
        let block = block.ok_or_else(|| {
            missing(
                "NoSuchPublicAccessBlockConfiguration",
                "The public access block configuration was not found",
            )
        })?;
        Reply::xml(&block)
    }

    pub(super) async fn put_public_access_block(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let block = request.parse_document()?;
        request.refuse_conditions()?;
        let block = complete(&block);
        self.set(request.bucket(), Setting::PublicAccessBlock, &block).await?;
        Ok(Reply::empty(StatusCode::OK))
    }

    pub(super) async fn delete_public_access_block(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        request.refuse_conditions()?;
        self.unset(request.bucket(), Setting::PublicAccessBlock).await?;
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }

    pub(super) async fn get_bucket_ownership_controls(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let controls: Option<OwnershipControls> =
            self.setting(request.bucket(), Setting::OwnershipControls).await?;
        let controls = controls.ok_or_else(|| {
            missing(
                "OwnershipControlsNotFoundError",
                "The bucket ownership controls were not found",
            )
        })?;
        Reply::xml(&controls)
    }

    pub(super) async fn put_bucket_ownership_controls(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let controls: OwnershipControls = request.parse_document()?;
        request.refuse_conditions()?;
        one_rule(&controls)?;
        let document = to_document(&controls);
        let mut has_list = false;
        let put = |settings: &mut Settings| {
            let mut after = settings.clone();
            after.set(Setting::OwnershipControls, document.clone())?;
            has_list = after.get(Setting::Acl).is_some() && AclSettings::of(&after).is_enforced();
            if !has_list {
                *settings = after;
            }
            Ok(())
        };
        self.store.buckets().change_settings(request.bucket(), put).await.map_err(s3_error)?;
        if has_list {
            return Err(bucket_has_list());
        }
        Ok(Reply::empty(StatusCode::OK))
    }

    pub(super) async fn delete_bucket_ownership_controls(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        request.refuse_conditions()?;
        self.unset(request.bucket(), Setting::OwnershipControls).await?;
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::from_document;

    fn controls(kinds: &[&'static str]) -> OwnershipControls {
        let rule = |kind: &&'static str| OwnershipControlsRule {
            object_ownership: ObjectOwnership::from_static(kind),
        };
        OwnershipControls { rules: kinds.iter().map(rule).collect() }
    }

    #[test]
    fn there_is_one_rule_and_it_is_one_of_three() {
        for kind in ["BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter"] {
            let controls = controls(&[kind]);
            one_rule(&controls).unwrap();
            let read: OwnershipControls = from_document(&to_document(&controls)).unwrap();
            assert_eq!(read, controls);
        }
        for wrong in [&[][..], &["ObjectWriter", "ObjectWriter"], &["objectwriter"], &[""]] {
            let refusal = one_rule(&controls(wrong)).unwrap_err();
            assert_eq!(refusal.code().as_str(), "MalformedXML", "{wrong:?}");
        }
    }

    #[test]
    fn missing_fields_of_a_public_access_block_are_false() {
        let said = PublicAccessBlockConfiguration {
            block_public_acls: Some(true),
            ..PublicAccessBlockConfiguration::default()
        };
        let block = complete(&said);
        let read: PublicAccessBlockConfiguration = from_document(&to_document(&block)).unwrap();
        assert_eq!((read.block_public_acls, read.ignore_public_acls), (Some(true), Some(false)));
        let rest = (read.block_public_policy, read.restrict_public_buckets);
        assert_eq!(rest, (Some(false), Some(false)));
    }
}
