//! Access control lists, as far as there is one: the owner of a bucket may do everything, and nobody
//! else anything. `GetBucketAcl`, `GetObjectAcl`; `PutBucketAcl` and `PutObjectAcl` take that list and
//! no other.

use http::StatusCode;
use martlet_proxy::{ObjectName, ReadConditions, Selection};
use s3s::dto::{
    AccessControlPolicy, BucketCannedACL, GetBucketAclInput, GetBucketAclOutput, GetObjectAclInput,
    GetObjectAclOutput, Grant, Grantee, ObjectCannedACL, Owner, Permission, PutBucketAclInput,
    PutBucketAclOutput, PutObjectAclInput, PutObjectAclOutput, Type,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use super::versions::named;
use super::{Operations, lenient, wire_owner};
use crate::errors::{custom, s3_error};

const PRIVATE: &str = "private";
const OWNER_FULL_CONTROL: &str = "bucket-owner-full-control";

/// The one list that there is.
fn grants(owner: &Owner) -> Vec<Grant> {
    let grantee = Grantee {
        display_name: owner.display_name.clone(),
        email_address: None,
        id: owner.id.clone(),
        type_: Type::from_static(Type::CANONICAL_USER),
        uri: None,
    };
    let permission = Some(Permission::from_static(Permission::FULL_CONTROL));
    vec![Grant { grantee: Some(grantee), permission }]
}

/// Refuses every list but that one.
fn check(owner: &str, canned: Option<&str>, list: Option<&AccessControlPolicy>) -> S3Result<()> {
    match (canned, list) {
        (None, None) => Err(custom(
            "MissingSecurityHeader",
            "Your request was missing a required header: x-amz-acl",
            StatusCode::BAD_REQUEST,
        )),
        (Some(_), Some(_)) => Err(custom(
            "UnexpectedContent",
            "This request does not support content",
            StatusCode::BAD_REQUEST,
        )),
        (Some(PRIVATE | OWNER_FULL_CONTROL), None) => Ok(()),
        (None, Some(list)) if is_private(owner, list) => Ok(()),
        _ => Err(s3_error!(NotImplemented, "Grants to others are not implemented")),
    }
}

fn is_private(owner: &str, list: &AccessControlPolicy) -> bool {
    let [Grant { grantee: Some(grantee), permission: Some(permission) }] =
        list.grants.as_deref().unwrap_or_default()
    else {
        return false;
    };
    let is_owner = |id: Option<&String>| id.is_none_or(|id| id == owner);
    permission.as_str() == Permission::FULL_CONTROL
        && grantee.type_.as_str() == Type::CANONICAL_USER
        && grantee.id.as_deref() == Some(owner)
        && is_owner(list.owner.as_ref().and_then(|owner| owner.id.as_ref()))
}

impl Operations {
    async fn bucket_owner(&self, bucket: &str) -> S3Result<String> {
        Ok(self.store.bucket(bucket).await.map_err(s3_error)?.owner.clone())
    }

    /// Refuses where there is no such object.
    async fn check_object(&self, bucket: &str, name: ObjectName<'_>) -> S3Result<()> {
        let conditions = ReadConditions::default();
        let read = self.store.head(bucket, name, Selection::Whole, &conditions).await;
        read.map(drop).map_err(s3_error)
    }

    pub(super) async fn get_bucket_acl(
        &self,
        request: S3Request<GetBucketAclInput>,
    ) -> S3Result<S3Response<GetBucketAclOutput>> {
        let owner = self.bucket_owner(&request.input.bucket).await?;
        let owner = wire_owner(&self.store, &owner).await;
        let (grants, owner) = (Some(grants(&owner)), Some(owner));
        Ok(S3Response::new(GetBucketAclOutput { grants, owner }))
    }

    pub(super) async fn put_bucket_acl(
        &self,
        mut request: S3Request<PutBucketAclInput>,
    ) -> S3Result<S3Response<PutBucketAclOutput>> {
        lenient(&mut request).refuse_conditions()?;
        let input = request.input;
        let owner = self.bucket_owner(&input.bucket).await?;
        let canned = input.acl.as_ref().map(BucketCannedACL::as_str);
        check(&owner, canned, input.access_control_policy.as_ref())?;
        Ok(S3Response::new(PutBucketAclOutput {}))
    }

    pub(super) async fn get_object_acl(
        &self,
        request: S3Request<GetObjectAclInput>,
    ) -> S3Result<S3Response<GetObjectAclOutput>> {
        let input = request.input;
        let name = named(&input.key, input.version_id.as_deref())?;
        let owner = self.bucket_owner(&input.bucket).await?;
        self.check_object(&input.bucket, name).await?;
        let owner = wire_owner(&self.store, &owner).await;
        let (grants, owner) = (Some(grants(&owner)), Some(owner));
        Ok(S3Response::new(GetObjectAclOutput { grants, owner, request_charged: None }))
    }

    pub(super) async fn put_object_acl(
        &self,
        mut request: S3Request<PutObjectAclInput>,
    ) -> S3Result<S3Response<PutObjectAclOutput>> {
        lenient(&mut request).refuse_conditions()?;
        let input = request.input;
        let name = named(&input.key, input.version_id.as_deref())?;
        let owner = self.bucket_owner(&input.bucket).await?;
        self.check_object(&input.bucket, name).await?;
        let canned = input.acl.as_ref().map(ObjectCannedACL::as_str);
        check(&owner, canned, input.access_control_policy.as_ref())?;
        Ok(S3Response::new(PutObjectAclOutput::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(id: &str) -> Owner {
        Owner { id: Some(id.to_owned()), display_name: Some(format!("{id} by name")) }
    }

    fn list(owner_id: &str, grants: Vec<Grant>) -> AccessControlPolicy {
        AccessControlPolicy { grants: Some(grants), owner: Some(owner(owner_id)) }
    }

    #[test]
    fn the_list_that_there_is_can_be_set_again() {
        check("me", Some("private"), None).unwrap();
        check("me", Some("bucket-owner-full-control"), None).unwrap();
        check("me", None, Some(&list("me", grants(&owner("me"))))).unwrap();
    }

    #[test]
    fn every_other_list_is_refused() {
        let code = |canned, list: Option<AccessControlPolicy>| {
            check("me", canned, list.as_ref()).unwrap_err().code().as_str().to_owned()
        };
        assert_eq!(code(None, None), "MissingSecurityHeader");
        assert_eq!(
            code(Some("private"), Some(list("me", grants(&owner("me"))))),
            "UnexpectedContent"
        );
        assert_eq!(code(Some("public-read"), None), "NotImplemented");
        let mut read = grants(&owner("me"));
        read[0].permission = Some(Permission::from_static(Permission::READ));
        let mut group = grants(&owner("me"));
        group[0].grantee.as_mut().unwrap().type_ = Type::from_static(Type::GROUP);
        let both = [grants(&owner("me")), grants(&owner("you"))].concat();
        for other in [read, group, both, grants(&owner("you")), Vec::new()] {
            assert_eq!(code(None, Some(list("me", other.clone()))), "NotImplemented", "{other:?}");
        }
        assert_eq!(code(None, Some(list("you", grants(&owner("me"))))), "NotImplemented");
    }
}
