//! Quotas and rates, as the admin address and `martlet admin` speak of them.

use serde::{Deserialize, Serialize};

/// Where the quota of a tenant is shown, and changed by PUT.
pub(crate) const TENANT_QUOTA: &str = "/admin/v1/tenant/quota";
/// The same of a bucket.
pub(crate) const BUCKET_QUOTA: &str = "/admin/v1/bucket/quota";
/// Where a bucket is counted while one waits.
pub(crate) const BUCKET_USAGE: &str = "/admin/v1/bucket/usage";

/// What a bound is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Bound {
    /// There is none any more.
    None,
    /// So much.
    At(u64),
}

impl Bound {
    /// Puts it in place of what was there.
    pub(crate) fn set(change: Option<Self>, bound: &mut Option<u64>) {
        match change {
            None => {}
            Some(Self::None) => *bound = None,
            Some(Self::At(at)) => *bound = Some(at),
        }
    }
}

/// What becomes of a quota; what isn't said stays.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct QuotaChange {
    /// Of the tenant or the bucket.
    pub(crate) name: String,
    pub(crate) bytes: Option<Bound>,
    pub(crate) objects: Option<Bound>,
    /// Bytes of the index.
    #[serde(default)]
    pub(crate) index: Option<Bound>,
}

/// How much is held, and how much may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QuotaLine {
    pub(crate) name: String,
    /// Bytes that it may hold; none: as many as there is space for.
    pub(crate) bytes_max: Option<u64>,
    /// The same of objects.
    pub(crate) objects_max: Option<u64>,
    /// The same of bytes of the index.
    #[serde(default)]
    pub(crate) index_max: Option<u64>,
    /// What it held when it was last counted; none: it was not counted.
    pub(crate) bytes: Option<u64>,
    pub(crate) objects: Option<u64>,
    #[serde(default)]
    pub(crate) index: Option<u64>,
    /// When the last count began, the oldest one of several buckets, in milliseconds since 1970.
    pub(crate) counted_ms: Option<u64>,
}

/// What becomes of rates; what isn't said stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RateChange {
    pub(crate) requests: Option<Bound>,
    pub(crate) bytes: Option<Bound>,
}

/// How fast requests may come, at each proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RateLine {
    /// Requests in a second.
    pub(crate) requests: Option<u64>,
    /// Bytes of bodies in a second, both ways together.
    pub(crate) bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_stays() {
        for (change, before, after) in [
            (None, Some(5), Some(5)),
            (Some(Bound::None), Some(5), None),
            (Some(Bound::At(7)), None, Some(7)),
        ] {
            let mut bound = before;
            Bound::set(change, &mut bound);
            assert_eq!(bound, after);
            let change = RateChange { requests: change, bytes: None };
            let text = serde_json::to_string(&change).unwrap();
            assert_eq!(serde_json::from_str::<RateChange>(&text).unwrap(), change, "{text}");
        }
    }
}
