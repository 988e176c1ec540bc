//! CreateBucket, `HeadBucket`, DeleteBucket, ListBuckets, `GetBucketLocation`.

use http::header::LOCATION;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use martlet_protocol::entry::{Bucket as StoredBucket, ETagKind};
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::{Setting, Settings};
use martlet_proxy::{
    Error, NamedBucket, NewBucket, ROOT, is_companion, lock_from_the_beginning, set_etag_kind,
};
use s3s::dto::{
    Bucket, BucketLocationConstraint, GetBucketLocationOutput, ListBucketsOutput, ObjectOwnership,
    OwnershipControls, OwnershipControlsRule, Tagging,
};
use s3s::{S3Result, s3_error};

use super::new_bucket::NewBucketDocument;
use super::operations::Operations;
use super::ownership::check_ownership;
use super::wire::owner;
use crate::attributes::wire_time;
use crate::auth::UNNAMED_REGION;
use crate::consistency::one;
use crate::errors::s3_error;
use crate::fields::{flag, query_text, query_value, text};
use crate::messages;
use crate::ops::wire::wire_owner;
use crate::reply::Reply;
use crate::request::OperationRequest;
use crate::settings::to_document;

/// Header with a bucket's storage policy, in CreateBucket requests and in replies.
pub(crate) const STORAGE_POLICY: HeaderName = HeaderName::from_static("x-martlet-storage-policy");
/// Header with the kind of a bucket's ETags, in CreateBucket requests and in replies.
pub(crate) const ETAGS: HeaderName = HeaderName::from_static("x-martlet-etags");
/// Header of HeadBucket requests that need the bucket's last count.
const USAGE: HeaderName = HeaderName::from_static("x-martlet-usage");
/// Headers with the last count: versions of objects, bytes of all versions and parts, and the time of
/// the count in milliseconds since 1970.
const USAGE_OBJECTS: HeaderName = HeaderName::from_static("x-martlet-usage-objects");
const USAGE_BYTES: HeaderName = HeaderName::from_static("x-martlet-usage-bytes");
const USAGE_COUNTED: HeaderName = HeaderName::from_static("x-martlet-usage-counted");
const BUCKET_REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");
const LOCK_ENABLED: HeaderName = HeaderName::from_static("x-amz-bucket-object-lock-enabled");
const OBJECT_OWNERSHIP: HeaderName = HeaderName::from_static("x-amz-object-ownership");
const BUCKET_ARN: HeaderName = HeaderName::from_static("x-amz-bucket-arn");
/// Maximum number of buckets in a page of ListBuckets, as in S3.
const BUCKETS_MAX: usize = 10_000;
/// Scope of the tokens of ListBuckets. No bucket has an empty name.
const TOKEN_SCOPE: &str = "";

/// Prefixes and suffixes of names that S3 reserves, and the suffix of views.
const RESERVED_STARTS: [&str; 3] = ["xn--", "sthree-", "amzn-s3-demo-"];
const RESERVED_ENDS: [&str; 6] =
    ["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3", super::view::SUFFIX];

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
fn settings_of_new(ownership: Option<&str>, tags: &Tagging) -> S3Result<Settings> {
    let mut settings = Settings::default();
    if !tags.tag_set.is_empty() {
        let set = settings.set(Setting::Tagging, to_document(tags));
        set.map_err(|too_long| s3_error(too_long.into()))?;
    }
    if let Some(ownership) = ownership {
        let object_ownership = ObjectOwnership::from(ownership.to_owned());
        if check_ownership(&object_ownership).is_err() {
            let wrong = messages::OBJECT_OWNERSHIP.with_subject(ownership);
            return Err(wrong.with_detail("ArgumentName", "x-amz-object-ownership").into());
        }
        let controls =
            OwnershipControls { rules: vec![OwnershipControlsRule { object_ownership }] };
        let set = settings.set(Setting::OwnershipControls, to_document(&controls));
        set.map_err(|too_long| s3_error(too_long.into()))?;
    }
    Ok(settings)
}

/// Parses the kind of a new bucket's ETags.
fn etag_kind(name: &str) -> S3Result<ETagKind> {
    let wrong = || s3_error(Error::InvalidArgument(format!("{ETAGS} must be md5 or opaque")));
    name.parse().map_err(|_| wrong())
}

/// Reply to the creation of a bucket.
fn created(name: &str) -> S3Result<Reply> {
    Reply::empty(StatusCode::OK).with_header(LOCATION, Some(format!("/{name}")))
}

impl Operations {
    pub(super) async fn create_bucket(&self, request: &OperationRequest) -> S3Result<Reply> {
        let headers = &request.headers;
        let is_locked = flag(headers, &LOCK_ENABLED)? == Some(true);
        let ownership = text(headers, &OBJECT_OWNERSHIP)?;
        let document = NewBucketDocument::of(request)?;
        request.refuse_conditions()?;
        let owner = owner(request)?;
        check_labels(request.bucket())?;
        self.check_location(&document)?;
        let policy = one(headers, &STORAGE_POLICY)?.map(str::to_owned);
        let etags = one(headers, &ETAGS)?.map(etag_kind).transpose()?;
        let tags = document.tagging()?;
        let is_plain = policy.is_none()
            && ownership.is_none()
            && etags.is_none()
            && !is_locked
            && tags.tag_set.is_empty();
        let mut settings = settings_of_new(ownership, &tags)?;
        if is_locked {
            lock_from_the_beginning(&mut settings).map_err(s3_error)?;
        }
        set_etag_kind(&mut settings, etags.unwrap_or_default()).map_err(s3_error)?;
        self.set_new_list(&owner, &request.headers, &mut settings).await?;
        let list = settings.get(Setting::Acl).map(<[u8]>::to_vec);
        let index_shards = INDEX_SHARDS_DEFAULT;
        let new = NewBucket { owner: owner.clone(), index_shards, policy, settings };
        match self.store.buckets().create(request.bucket(), new).await {
            Ok(bucket) => {
                let headers = self.headers_of(request.bucket(), &bucket);
                created(request.bucket()).map(|reply| reply.with_headers(headers))
            }
            Err(Error::BucketExists { owner: holder }) if holder == owner => {
                let before = self.store.buckets().setting(request.bucket(), Setting::Acl).await;
                // The existing bucket has another list, so the request conflicts with it.
                if before.map_err(s3_error)? != list {
                    return Err(s3_error(Error::BucketExists { owner }));
                }
                // In its first region S3 accepts a repeated CreateBucket that sets nothing else.
                if &*self.region == UNNAMED_REGION && is_plain {
                    return created(request.bucket());
                }
                Err(messages::BUCKET_OWNED.error())
            }
            Err(error) => Err(s3_error(error)),
        }
    }

    fn check_location(&self, document: &NewBucketDocument) -> S3Result<()> {
        if document.is_directory {
            return Err(s3_error!(NotImplemented, "Directory buckets are not implemented"));
        }
        match document.location_constraint.as_deref() {
            None | Some("") => Ok(()),
            Some(region) if region == &*self.region => Ok(()),
            Some(region) => Err(messages::LOCATION.with_subject(region).into()),
        }
    }

    pub(super) async fn head_bucket(&self, request: &OperationRequest) -> S3Result<Reply> {
        let bucket = self.store.bucket(request.bucket()).await.map_err(s3_error)?;
        let mut headers = self.headers_of(request.bucket(), &bucket);
        headers.extend(self.usage_of(request, &bucket).await?);
        Reply::empty(StatusCode::OK)
            .with_headers(headers)
            .with_header(BUCKET_REGION, Some(&*self.region))
    }

    /// Headers with the last count of a bucket, for requests of the owner's account that need it; none
    /// for a bucket that was not counted yet. Reads one document, and counts nothing. A count includes
    /// versions, which other accounts that may list the bucket don't see.
    async fn usage_of(
        &self,
        request: &OperationRequest,
        bucket: &StoredBucket,
    ) -> S3Result<HeaderMap> {
        let is_wanted = flag(&request.headers, &USAGE)? == Some(true);
        let who = request.context.identity.who();
        let is_owner = who.is_some_and(|who| *who.canonical_id == *bucket.owner || who.is_root());
        if !is_wanted || !is_owner {
            return Ok(HeaderMap::new());
        }
        let usage = self.store.directory().bucket_usage(bucket).await.map_err(s3_error)?;
        let Some(count) = usage else { return Ok(HeaderMap::new()) };
        Ok(HeaderMap::from_iter([
            (USAGE_OBJECTS, HeaderValue::from(count.usage.objects)),
            (USAGE_BYTES, HeaderValue::from(count.usage.bytes)),
            (USAGE_COUNTED, HeaderValue::from(count.began_ms)),
        ]))
    }

    /// Headers with a bucket's ARN, the kind of its ETags, and its storage policy's name if a ring
    /// defines it.
    fn headers_of(&self, name: &str, bucket: &StoredBucket) -> HeaderMap {
        let cluster = self.store.topology().cluster();
        let policy = cluster.policy_name(bucket.policy).map(HeaderValue::from_str);
        let policy = policy.and_then(Result::ok).map(|policy| (STORAGE_POLICY, policy));
        let arn = HeaderValue::try_from(format!("arn:aws:s3:::{name}")).ok();
        let etags = (ETAGS, HeaderValue::from_static(bucket.etags().name()));
        policy.into_iter().chain(arn.map(|arn| (BUCKET_ARN, arn))).chain([etags]).collect()
    }

    pub(super) async fn delete_bucket(&self, request: &OperationRequest) -> S3Result<Reply> {
        request.refuse_conditions()?;
        self.store.buckets().delete(request.bucket()).await.map_err(s3_error)?;
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }

    pub(super) async fn get_bucket_location(&self, request: &OperationRequest) -> S3Result<Reply> {
        self.store.bucket(request.bucket()).await.map_err(s3_error)?;
        let location_constraint = (&*self.region != UNNAMED_REGION)
            .then(|| BucketLocationConstraint::from(self.region.to_string()));
        Reply::xml(&GetBucketLocationOutput { location_constraint })
    }

    pub(super) async fn list_buckets(&self, request: &OperationRequest) -> S3Result<Reply> {
        let query = request.query()?;
        let max_buckets: Option<i32> = query_value(&query, "max-buckets")?;
        let owner = owner(request)?;
        let limit = match max_buckets {
            None => BUCKETS_MAX,
            Some(requested) => usize::try_from(requested)
                .ok()
                .filter(|requested| (1..=BUCKETS_MAX).contains(requested))
                .ok_or_else(|| messages::MAX_BUCKETS.argument("max-buckets", requested))?,
        };
        let after = match query.get("continuation-token") {
            None => None,
            Some(token) => Some(self.open_token(TOKEN_SCOPE, token)?),
        };
        let prefix = query_text(&query, "prefix").unwrap_or_default();
        let (buckets, more) = match query.get("bucket-region") {
            Some(region) if region != &*self.region => (Vec::new(), false),
            _ => self.buckets_of(&owner, &prefix, after, limit).await?,
        };
        let last = buckets.last().filter(|_| more);
        Reply::xml(&ListBucketsOutput {
            continuation_token: last.map(|last| self.tokens.seal(TOKEN_SCOPE, &last.name)),
            owner: Some(wire_owner(&self.store, &owner).await),
            prefix: (!prefix.is_empty()).then_some(prefix),
            buckets: Some(buckets.into_iter().map(|bucket| self.wire_bucket(bucket)).collect()),
        })
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
            let page = self.store.buckets().list(prefix, after.as_deref(), BUCKETS_MAX).await;
            let (page, more) = page.map_err(s3_error)?;
            after = page.last().map(|last| last.name.clone());
            let is_shown = |named: &NamedBucket| {
                (named.bucket.owner == owner || owner == ROOT) && !is_companion(&named.name)
            };
            found.extend(page.into_iter().filter(is_shown));
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
