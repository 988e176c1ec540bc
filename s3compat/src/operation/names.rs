//! The operations of S3, and those on checkpoint sets.

/// Declares the operations by S3's names, in the order of the table.
macro_rules! operations {
    ($($name:ident)*) => {
        /// An operation of S3. The HTTP pipeline decides the operation of a request once; all later
        /// code matches on it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Operation {
            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                $name,
            )*
        }

        impl Operation {
            /// All operations, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name),*];
            /// Number of operations.
            pub(super) const COUNT: usize = Self::ALL.len();

            /// S3's name of the operation.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

operations! {
    ListBuckets HeadBucket GetBucketLocation ListMultipartUploads ListObjectsV2 ListObjects
    CreateBucket DeleteBucket GetBucketPolicy GetBucketPolicyStatus PutBucketPolicy
    DeleteBucketPolicy DeleteObjects PostObject GetBucketAcl PutBucketAcl GetBucketCors
    PutBucketCors DeleteBucketCors GetBucketEncryption PutBucketEncryption
    DeleteBucketEncryption GetBucketLifecycleConfiguration PutBucketLifecycleConfiguration
    DeleteBucketLifecycle GetBucketLogging PutBucketLogging GetBucketNotificationConfiguration
    PutBucketNotificationConfiguration GetObjectLockConfiguration PutObjectLockConfiguration
    GetBucketOwnershipControls PutBucketOwnershipControls DeleteBucketOwnershipControls
    GetPublicAccessBlock PutPublicAccessBlock DeletePublicAccessBlock GetBucketRequestPayment
    GetBucketTagging PutBucketTagging DeleteBucketTagging GetBucketVersioning
    PutBucketVersioning GetBucketCheckpoints PutBucketCheckpoints DeleteBucketCheckpoints
    GetCheckpointRetention GetCheckpoint CommitCheckpoint HoldCheckpoint DeleteCheckpoint ListObjectVersions HeadObject GetObjectAcl PutObjectAcl
    GetObjectAttributes GetObjectLegalHold PutObjectLegalHold GetObjectRetention
    PutObjectRetention GetObjectTagging ListParts LocateObject GetObject PutObjectTagging UploadPartCopy
    UploadPart CopyObject PutObject CreateMultipartUpload CompleteMultipartUpload
    DeleteObjectTagging AbortMultipartUpload DeleteObject
}
