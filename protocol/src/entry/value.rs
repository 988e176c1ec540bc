//! Value of an entry.

use serde::{Deserialize, Serialize};

use super::account::AccountDocument;
use super::body::Body;
use super::bucket::Bucket;
use super::object::{DeleteMarker, Object};
use super::upload::{Part, Upload};
use crate::version::Version;

/// Value of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    /// A deleted value.
    Tombstone,
    /// An object.
    Object(Box<Object>),
    /// A bucket, in the root bucket.
    Bucket(Box<Bucket>),
    /// A multipart upload.
    Upload(Box<Upload>),
    /// A part of an upload.
    Part(Box<Part>),
    /// A version that marks its key as deleted, in a versioned bucket.
    DeleteMarker(Box<DeleteMarker>),
    /// A document about a tenant, user or access key, in the root bucket.
    Account(AccountDocument),
}

impl Value {
    /// Returns the body, for values that have bytes of their own.
    pub fn body(&self) -> Option<&Body> {
        match self {
            Self::Object(object) => Some(&object.body),
            Self::Part(part) => Some(&part.body),
            Self::Tombstone
            | Self::Bucket(_)
            | Self::Upload(_)
            | Self::DeleteMarker(_)
            | Self::Account(_) => None,
        }
    }

    /// Returns the version, for objects and delete markers. Values from before versioning return
    /// [`Version::UNVERSIONED`].
    pub fn version(&self) -> Option<Version> {
        let version = match self {
            Self::Object(object) => object.version,
            Self::DeleteMarker(marker) => marker.version,
            Self::Tombstone
            | Self::Bucket(_)
            | Self::Upload(_)
            | Self::Part(_)
            | Self::Account(_) => return None,
        };
        Some(version.unwrap_or(Version::UNVERSIONED))
    }

    /// True if the value is a tombstone.
    pub fn is_tombstone(&self) -> bool {
        matches!(self, Self::Tombstone)
    }

    /// True if the value is an object: a name that a listing of objects shows or folds.
    pub fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }
}
