//! JSON messages about quotas and rates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Path of a tenant's quota; PUT changes it.
pub const TENANT_QUOTA: &str = "/admin/v1/tenant/quota";
/// Path of a bucket's quota; PUT changes it.
pub const BUCKET_QUOTA: &str = "/admin/v1/bucket/quota";
/// Path of a bucket's usage. The request may wait while the bucket is counted.
pub const BUCKET_USAGE: &str = "/admin/v1/bucket/usage";

/// New value of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// No bound.
    None,
    /// Bound at this number.
    At(u64),
}

impl Bound {
    /// Applies a change to a bound. `None` leaves it unchanged.
    pub fn set(change: Option<Self>, bound: &mut Option<u64>) {
        match change {
            None => {}
            Some(Self::None) => *bound = None,
            Some(Self::At(at)) => *bound = Some(at),
        }
    }
}

/// Request to change a quota. `None` leaves a bound unchanged.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct QuotaChange {
    /// Name of the tenant or the bucket.
    pub name: String,
    /// Limit on bytes.
    pub bytes: Option<Bound>,
    /// Limit on objects.
    pub objects: Option<Bound>,
    /// Bytes of the index.
    #[serde(default)]
    pub index: Option<Bound>,
}

/// Quota and usage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuotaLine {
    /// Name of the tenant or the bucket.
    pub name: String,
    /// Limit on bytes. `None` means no limit.
    pub bytes_max: Option<u64>,
    /// Limit on objects. `None` means no limit.
    pub objects_max: Option<u64>,
    /// Limit on bytes of the index. `None` means no limit.
    #[serde(default)]
    pub index_max: Option<u64>,
    /// Usage at the last count. `None` before the first count.
    pub bytes: Option<u64>,
    /// Objects at the last count.
    pub objects: Option<u64>,
    /// Bytes of the index at the last count.
    #[serde(default)]
    pub index: Option<u64>,
    /// Start of the last count, in milliseconds since 1970. For several buckets, the oldest one's.
    pub counted_ms: Option<u64>,
}

/// Change of rates. `None` leaves a rate unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RateChange {
    /// Requests per second.
    pub requests: Option<Bound>,
    /// Bytes of bodies per second, both directions together.
    pub bytes: Option<Bound>,
}

/// Limits on the rate of requests at each proxy. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RateLine {
    /// Requests per second.
    pub requests: Option<u64>,
    /// Bytes of bodies per second, both directions together.
    pub bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_stay_unchanged() {
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
