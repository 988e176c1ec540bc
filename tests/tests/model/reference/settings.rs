//! Buckets, their versioning, and the documents that are put to them and returned.

use super::state::{ARGUMENT, BucketState, MALFORMED, Versioning};
use super::{Answer, Model};
use crate::expected::{Content, Expected, Outcome};
use crate::operation::{Bucket, Operation};

/// A document to put, and the error that it gives. `BUCKET` stands for the bucket's name.
pub(crate) struct Variant {
    pub(crate) text: &'static str,
    pub(crate) fault: Option<Outcome>,
}

/// A kind of a bucket's document.
pub(crate) struct Kind {
    pub(crate) query: &'static str,
    /// Error of a bucket without the document.
    absent: &'static str,
    put_status: u16,
    pub(crate) variants: &'static [Variant],
}

const fn good(text: &'static str) -> Variant {
    Variant { text, fault: None }
}

const fn bad(text: &'static str, fault: Outcome) -> Variant {
    Variant { text, fault: Some(fault) }
}

const POLICY: Outcome = (400, "MalformedPolicy");

/// The documents: <https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutBucketCors.html>,
/// `PutBucketLifecycleConfiguration`, `PutBucketPolicy`, `PutBucketTagging`,
/// `PutPublicAccessBlock` and `PutBucketOwnershipControls` in the same reference.
pub(crate) const DOCUMENTS: [Kind; 6] = [
    Kind {
        query: "cors",
        absent: "NoSuchCORSConfiguration",
        put_status: 200,
        variants: &[
            good(
                "<CORSConfiguration><CORSRule><AllowedHeader>*</AllowedHeader><AllowedMethod>GET</AllowedMethod><AllowedOrigin>https://a.example</AllowedOrigin></CORSRule></CORSConfiguration>",
            ),
            good(
                "<CORSConfiguration><CORSRule><AllowedMethod>PUT</AllowedMethod><AllowedOrigin>*</AllowedOrigin><MaxAgeSeconds>60</MaxAgeSeconds></CORSRule></CORSConfiguration>",
            ),
            bad("<CORSConfiguration></CORSConfiguration>", MALFORMED),
            bad(
                "<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>",
                MALFORMED,
            ),
            bad(
                "<CORSConfiguration><CORSRule><AllowedMethod>FETCH</AllowedMethod><AllowedOrigin>*</AllowedOrigin></CORSRule></CORSConfiguration>",
                (400, "InvalidRequest"),
            ),
        ],
    },
    Kind {
        query: "lifecycle",
        absent: "NoSuchLifecycleConfiguration",
        put_status: 200,
        variants: &[
            good(
                "<LifecycleConfiguration><Rule><Expiration><Days>3000</Days></Expiration><Filter><Prefix>gone/</Prefix></Filter><ID>one</ID><Status>Enabled</Status></Rule></LifecycleConfiguration>",
            ),
            good(
                "<LifecycleConfiguration><Rule><AbortIncompleteMultipartUpload><DaysAfterInitiation>900</DaysAfterInitiation></AbortIncompleteMultipartUpload><Filter><Prefix></Prefix></Filter><ID>two</ID><Status>Disabled</Status></Rule></LifecycleConfiguration>",
            ),
            bad("<LifecycleConfiguration></LifecycleConfiguration>", MALFORMED),
            bad(
                "<LifecycleConfiguration><Rule><Expiration><Days>0</Days></Expiration><Filter/><ID>one</ID><Status>Enabled</Status></Rule></LifecycleConfiguration>",
                ARGUMENT,
            ),
            bad(
                "<LifecycleConfiguration><Rule><Expiration><Days>1,000</Days></Expiration><Filter/><ID>one</ID><Status>Enabled</Status></Rule></LifecycleConfiguration>",
                MALFORMED,
            ),
            bad(
                "<LifecycleConfiguration><Rule><Expiration><Days>3</Days></Expiration><Filter/><ID>one</ID><Status>On</Status></Rule></LifecycleConfiguration>",
                MALFORMED,
            ),
        ],
    },
    Kind {
        query: "policy",
        absent: "NoSuchBucketPolicy",
        put_status: 204,
        variants: &[
            good(
                r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::BUCKET/*"}]}"#,
            ),
            good(
                r#"{"Version":"2012-10-17","Statement":[{"Sid":"a","Effect":"Allow","Principal":"*","Action":"s3:ListBucket","Resource":"arn:aws:s3:::BUCKET"}]}"#,
            ),
            bad(r#"{"Version":"2012-10-17","Statement":[]}"#, POLICY),
            bad(
                r#"{"Version":"2012-10-17","Statement":[{"Effect":"Perhaps","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::BUCKET/*"}]}"#,
                POLICY,
            ),
            bad(
                r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::other/*"}]}"#,
                POLICY,
            ),
            bad("{", POLICY),
        ],
    },
    Kind {
        query: "tagging",
        absent: "NoSuchTagSet",
        put_status: 204,
        variants: &[
            good("<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>"),
            good(
                "<Tagging><TagSet><Tag><Key>a b</Key><Value></Value></Tag><Tag><Key>c</Key><Value>ü</Value></Tag></TagSet></Tagging>",
            ),
            bad(
                "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag><Tag><Key>a</Key><Value>2</Value></Tag></TagSet></Tagging>",
                (400, "InvalidTag"),
            ),
            bad("<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>", MALFORMED),
            bad("<Tagging><TagSet>", MALFORMED),
        ],
    },
    Kind {
        query: "publicAccessBlock",
        absent: "NoSuchPublicAccessBlockConfiguration",
        put_status: 200,
        variants: &[
            good(
                "<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls><IgnorePublicAcls>false</IgnorePublicAcls><BlockPublicPolicy>false</BlockPublicPolicy><RestrictPublicBuckets>false</RestrictPublicBuckets></PublicAccessBlockConfiguration>",
            ),
            bad(
                "<PublicAccessBlockConfiguration><BlockPublicAcl>true</BlockPublicAcl></PublicAccessBlockConfiguration>",
                MALFORMED,
            ),
        ],
    },
    Kind {
        query: "ownershipControls",
        absent: "OwnershipControlsNotFoundError",
        put_status: 200,
        variants: &[
            good(
                "<OwnershipControls><Rule><ObjectOwnership>BucketOwnerPreferred</ObjectOwnership></Rule></OwnershipControls>",
            ),
            good(
                "<OwnershipControls><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule></OwnershipControls>",
            ),
            bad(
                "<OwnershipControls><Rule><ObjectOwnership>Anyone</ObjectOwnership></Rule></OwnershipControls>",
                MALFORMED,
            ),
            bad("<OwnershipControls></OwnershipControls>", MALFORMED),
        ],
    },
];

/// Configurations of object lock
/// (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObjectLockConfiguration.html>). The second
/// has a default retention.
pub(crate) const LOCK_CONFIGURATIONS: [Variant; 5] = [
    good(
        "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>",
    ),
    good(
        "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Days>1</Days><Mode>GOVERNANCE</Mode></DefaultRetention></Rule></ObjectLockConfiguration>",
    ),
    bad(
        "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Days>0</Days><Mode>GOVERNANCE</Mode></DefaultRetention></Rule></ObjectLockConfiguration>",
        (400, "InvalidRetentionPeriod"),
    ),
    bad(
        "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Days>1</Days><Mode>LOOSE</Mode></DefaultRetention></Rule></ObjectLockConfiguration>",
        MALFORMED,
    ),
    bad(
        "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Days>1</Days><Mode>GOVERNANCE</Mode><Years>1</Years></DefaultRetention></Rule></ObjectLockConfiguration>",
        MALFORMED,
    ),
];

impl Model {
    pub(super) fn settings(&mut self, operation: &Operation) -> Answer {
        match operation {
            Operation::CreateBucket { bucket, lock } => Ok(self.create(*bucket, *lock)),
            Operation::CreateNamed { .. } => Ok(Expected::success(200)),
            Operation::HeadBucket { bucket } => {
                self.state.bucket(*bucket)?;
                Ok(Expected::success(200))
            }
            Operation::DeleteBucket { bucket } => {
                if !self.state.bucket(*bucket)?.is_empty() {
                    return Err((409, "BucketNotEmpty"));
                }
                self.state.remove(*bucket);
                Ok(Expected::success(204))
            }
            Operation::SetVersioning { bucket, status } => self.set_versioning(*bucket, status),
            Operation::GetVersioning { bucket } => {
                let status = match self.state.bucket(*bucket)?.versioning {
                    Versioning::Off => crate::expected::Text::Absent,
                    Versioning::Enabled => "Enabled".into(),
                    Versioning::Suspended => "Suspended".into(),
                };
                Ok(Expected::success(200).document(vec![("Status", status)], Vec::new()))
            }
            Operation::PutLockConfiguration { bucket, variant } => {
                let bucket = self.state.bucket_mut(*bucket)?;
                if bucket.versioning != Versioning::Enabled {
                    return Err((409, "InvalidBucketState"));
                }
                (bucket.lock, bucket.default_retention) = (true, *variant == 1);
                Ok(Expected::success(200))
            }
            Operation::GetLockConfiguration { bucket } => {
                let bucket = self.state.bucket(*bucket)?;
                if !bucket.lock {
                    return Err((404, "ObjectLockConfigurationNotFoundError"));
                }
                let text = LOCK_CONFIGURATIONS[usize::from(bucket.default_retention)].text;
                Ok(Expected::success(200).with(Content::Contains(text.to_owned())))
            }
            Operation::PutDocument { bucket, kind, variant } => {
                self.state.bucket_mut(*bucket)?.documents.insert(*kind, *variant);
                Ok(Expected::success(DOCUMENTS[*kind].put_status))
            }
            Operation::GetDocument { bucket, kind } => {
                let documents = &self.state.bucket(*bucket)?.documents;
                let kind_of = &DOCUMENTS[*kind];
                let variant = documents.get(kind).ok_or((404, kind_of.absent))?;
                let text = kind_of.variants[*variant].text.to_owned();
                Ok(Expected::success(200).with(Content::Contains(text)))
            }
            Operation::DeleteDocument { bucket, kind } => {
                self.state.bucket_mut(*bucket)?.documents.remove(kind);
                Ok(Expected::success(204))
            }
            other => unreachable!("{other:?} is of another part of the model"),
        }
    }

    /// CreateBucket (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_CreateBucket.html>). In
    /// S3's first region an own bucket is 200 and stays as it is; with object lock it is
    /// `BucketAlreadyOwnedByYou` (docs/S3.md, Access control lists).
    fn create(&mut self, bucket: Bucket, lock: bool) -> Expected {
        if self.state.bucket(bucket).is_ok() {
            let taken = Expected::failure(vec![(409, "BucketAlreadyOwnedByYou")]);
            return if lock { taken } else { Expected::success(200) };
        }
        let versioning = if lock { Versioning::Enabled } else { Versioning::Off };
        self.state.insert(bucket, BucketState { versioning, lock, ..BucketState::default() });
        Expected::success(200)
    }

    /// `PutBucketVersioning`
    /// (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutBucketVersioning.html>).
    fn set_versioning(&mut self, bucket: Bucket, status: &str) -> Answer {
        let bucket = self.state.bucket_mut(bucket)?;
        bucket.versioning = match status {
            "Suspended" if bucket.lock => return Err((409, "InvalidBucketState")),
            "Suspended" => Versioning::Suspended,
            _ => Versioning::Enabled,
        };
        Ok(Expected::success(200))
    }
}
