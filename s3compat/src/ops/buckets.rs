//! CreateBucket, `HeadBucket`, DeleteBucket, ListBuckets, `GetBucketLocation`.

use http::{HeaderMap, HeaderName, HeaderValue};
use martlet_protocol::entry::Bucket as StoredBucket;
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::{Setting, Settings};
use martlet_proxy::{Error, NamedBucket, NewBucket, ROOT, lock_from_the_beginning};
use s3s::dto::{
    Bucket, BucketLocationConstraint, CreateBucketConfiguration, CreateBucketInput,
    CreateBucketOutput, DeleteBucketInput, DeleteBucketOutput, GetBucketLocationInput,
    GetBucketLocationOutput, HeadBucketInput, HeadBucketOutput, ListBucketsInput,
    ListBucketsOutput, ObjectOwnership, OwnershipControls, OwnershipControlsRule, Tagging,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use super::new_tags;
use super::ownership::check_ownership;
use super::settings::to_document;
use super::{Operations, owner, parsed_headers};
use crate::attributes::wire_time;
use crate::auth::UNNAMED_REGION;
use crate::consistency::one;
use crate::errors::s3_error;
use crate::messages;

/// Header with a bucket's storage policy, in CreateBucket requests and in replies.
pub(crate) const STORAGE_POLICY: HeaderName = HeaderName::from_static("x-martlet-storage-policy");
const BUCKET_ARN: HeaderName = HeaderName::from_static("x-amz-bucket-arn");
/// Maximum number of buckets in a page of ListBuckets, as in S3.
const BUCKETS_MAX: usize = 10_000;
/// Scope of the tokens of ListBuckets. No bucket has an empty name.
const TOKEN_SCOPE: &str = "";

/// Prefixes and suffixes of names that S3 reserves.
const RESERVED_STARTS: [&str; 3] = ["xn--", "sthree-", "amzn-s3-demo-"];
const RESERVED_ENDS: [&str; 5] = ["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"];

/// Refuses reserved names, and labels that begin or end with a hyphen: a bucket's name may be the
/// name of a host. Names with a hyphen at either end are refused before.
fn check_labels(name: &str) -> S3Result<()> {
    if name.contains(".-")
        || name.contains("-.")
        || RESERVED_STARTS.iter().any(|start| name.starts_with(start))
        || RESERVED_ENDS.iter().any(|end| name.ends_with(end))
    {
        return Err(messages::BUCKET_NAME.error());
    }
    Ok(())
}

/// Settings of a new bucket.
fn settings_of_new(ownership: Option<ObjectOwnership>, tags: &Tagging) -> S3Result<Settings> {
    let mut settings = Settings::default();
    if !tags.tag_set.is_empty() {
        let set = settings.set(Setting::Tagging, to_document(tags));
        set.map_err(|too_long| s3_error(too_long.into()))?;
    }
    if let Some(object_ownership) = ownership {
        if check_ownership(&object_ownership).is_err() {
            let wrong = messages::OBJECT_OWNERSHIP.with_subject(object_ownership.as_str());
            return Err(wrong.with_detail("ArgumentName", "x-amz-object-ownership").into());
        }
        let controls =
            OwnershipControls { rules: vec![OwnershipControlsRule { object_ownership }] };
        let set = settings.set(Setting::OwnershipControls, to_document(&controls));
        set.map_err(|too_long| s3_error(too_long.into()))?;
    }
    Ok(settings)
}

impl Operations {
    pub(super) async fn create_bucket(
        &self,
        mut request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        parsed_headers(&mut request).refuse_conditions()?;
        let owner = owner(&request.extensions)?;
        let input = request.input;
        check_labels(&input.bucket)?;
        self.check_location(input.create_bucket_configuration.as_ref())?;
        let policy = one(&request.headers, &STORAGE_POLICY)?.map(str::to_owned);
        let is_locked = input.object_lock_enabled_for_bucket == Some(true);
        let tags = new_tags::of(&request.extensions)?;
        let is_plain = policy.is_none()
            && input.object_ownership.is_none()
            && !is_locked
            && tags.tag_set.is_empty();
        let mut settings = settings_of_new(input.object_ownership, &tags)?;
        if is_locked {
            lock_from_the_beginning(&mut settings).map_err(s3_error)?;
        }
        self.set_new_list(&owner, &request.headers, &mut settings).await?;
        let list = settings.get(Setting::Acl).map(<[u8]>::to_vec);
        let index_shards = INDEX_SHARDS_DEFAULT;
        let new = NewBucket { owner: owner.clone(), index_shards, policy, settings };
        match self.store.create_bucket(&input.bucket, new).await {
            Ok(bucket) => {
                let location = Some(format!("/{}", input.bucket));
                let headers = self.headers_of(&input.bucket, &bucket);
                Ok(S3Response::with_headers(CreateBucketOutput { location }, headers))
            }
            Err(Error::BucketExists { owner: holder }) if holder == owner => {
                let before = self.store.bucket_setting(&input.bucket, Setting::Acl).await;
                // The existing bucket has another list, so the request conflicts with it.
                if before.map_err(s3_error)? != list {
                    return Err(s3_error(Error::BucketExists { owner }));
                }
                // In its first region S3 accepts a repeated CreateBucket that sets nothing else.
                if &*self.region == UNNAMED_REGION && is_plain {
                    let location = Some(format!("/{}", input.bucket));
                    return Ok(S3Response::new(CreateBucketOutput { location }));
                }
                Err(messages::BUCKET_OWNED.error())
            }
            Err(error) => Err(s3_error(error)),
        }
    }

    fn check_location(&self, configuration: Option<&CreateBucketConfiguration>) -> S3Result<()> {
        let Some(configuration) = configuration else { return Ok(()) };
        if configuration.bucket.is_some() || configuration.location.is_some() {
            return Err(s3_error!(NotImplemented, "Directory buckets are not implemented"));
        }
        match configuration.location_constraint.as_ref().map(BucketLocationConstraint::as_str) {
            None | Some("") => Ok(()),
            Some(region) if region == &*self.region => Ok(()),
            Some(region) => Err(messages::LOCATION.with_subject(region).into()),
        }
    }

    pub(super) async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        let bucket = self.store.bucket(&request.input.bucket).await.map_err(s3_error)?;
        let bucket_region = Some(self.region.to_string());
        let output = HeadBucketOutput { bucket_region, ..Default::default() };
        let headers = self.headers_of(&request.input.bucket, &bucket);
        Ok(S3Response::with_headers(output, headers))
    }

    /// Headers with a bucket's ARN, and with its storage policy's name if a ring defines it.
    fn headers_of(&self, name: &str, bucket: &StoredBucket) -> HeaderMap {
        let cluster = self.store.cluster();
        let policy = cluster.policy_name(bucket.policy).map(HeaderValue::from_str);
        let policy = policy.and_then(Result::ok).map(|policy| (STORAGE_POLICY, policy));
        let arn = HeaderValue::try_from(format!("arn:aws:s3:::{name}")).ok();
        policy.into_iter().chain(arn.map(|arn| (BUCKET_ARN, arn))).collect()
    }

    pub(super) async fn delete_bucket(
        &self,
        mut request: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        parsed_headers(&mut request).refuse_conditions()?;
        self.store.delete_bucket(&request.input.bucket).await.map_err(s3_error)?;
        Ok(S3Response::new(DeleteBucketOutput {}))
    }

    pub(super) async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        self.store.bucket(&request.input.bucket).await.map_err(s3_error)?;
        let location_constraint = (&*self.region != UNNAMED_REGION)
            .then(|| BucketLocationConstraint::from(self.region.to_string()));
        Ok(S3Response::new(GetBucketLocationOutput { location_constraint }))
    }

    pub(super) async fn list_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let owner = owner(&request.extensions)?;
        let input = request.input;
        let limit = match input.max_buckets {
            None => BUCKETS_MAX,
            Some(asked) => usize::try_from(asked)
                .ok()
                .filter(|asked| (1..=BUCKETS_MAX).contains(asked))
                .ok_or_else(|| messages::MAX_BUCKETS.argument("max-buckets", asked))?,
        };
        let after = match input.continuation_token.as_deref() {
            None => None,
            Some(token) => Some(self.open_token(TOKEN_SCOPE, token)?),
        };
        let prefix = input.prefix.unwrap_or_default();
        let (buckets, more) = match input.bucket_region {
            Some(region) if region != *self.region => (Vec::new(), false),
            _ => self.buckets_of(&owner, &prefix, after, limit).await?,
        };
        let last = buckets.last().filter(|_| more);
        Ok(S3Response::new(ListBucketsOutput {
            continuation_token: last.map(|last| self.tokens.seal(TOKEN_SCOPE, &last.name)),
            owner: Some(super::wire_owner(&self.store, &owner).await),
            prefix: (!prefix.is_empty()).then_some(prefix),
            buckets: Some(buckets.into_iter().map(|bucket| self.wire_bucket(bucket)).collect()),
        }))
    }

    /// Page of the buckets of one owner, and true if there are more. Root sees all buckets.
    async fn buckets_of(
        &self,
        owner: &str,
        prefix: &str,
        mut after: Option<String>,
        limit: usize,
    ) -> S3Result<(Vec<NamedBucket>, bool)> {
        let mut found: Vec<NamedBucket> = Vec::new();
        loop {
            let page = self.store.list_buckets(prefix, after.as_deref(), BUCKETS_MAX).await;
            let (page, more) = page.map_err(s3_error)?;
            after = page.last().map(|last| last.name.clone());
            found.extend(
                page.into_iter().filter(|named| named.bucket.owner == owner || owner == ROOT),
            );
            if found.len() > limit || !more || after.is_none() {
                let more = found.len() > limit;
                found.truncate(limit);
                return Ok((found, more));
            }
        }
    }

    fn wire_bucket(&self, named: NamedBucket) -> Bucket {
        Bucket {
            bucket_region: Some(self.region.to_string()),
            creation_date: Some(wire_time(named.bucket.created_ms)),
            name: Some(named.name),
        }
    }

    /// Decodes the position in a continuation token.
    pub(super) fn open_token(&self, scope: &str, token: &str) -> S3Result<String> {
        let position = self.tokens.open(scope, token);
        position.ok_or_else(|| messages::CONTINUATION_TOKEN.named("continuation-token").into())
    }
}
