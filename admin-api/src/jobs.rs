//! JSON messages about jobs: long work of one process, which its operators start, follow and cancel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ring_push::RingFile;

/// Path of the list of jobs; POST starts a job.
pub const JOBS: &str = "/admin/v1/jobs";
/// Path of a job; DELETE cancels it.
pub const JOB: &str = "/admin/v1/job";
/// Number of ended jobs that a process remembers.
pub const HISTORY_MAX: usize = 100;

/// Kind of the job that compares all devices with the rings.
pub const CENSUS: &str = "census";
/// Kind of the job that moves a bucket's objects to its storage policy.
pub const REWRITE: &str = "rewrite";
/// Kind of the job that wraps a bucket's data keys by the first master key.
pub const REWRAP: &str = "rewrap";
/// Kind of the job that counts the usage of a bucket.
pub const BUCKET_COUNT: &str = "bucket-count";
/// Kind of the job that returns votes to devices whose registers are lost.
pub const ACCEPT_LOSS: &str = "index-accept-loss";
/// Kind of the job that makes entries from extents.
pub const REBUILD: &str = "index-rebuild";
/// Kind of the job that sends rings to all nodes of a cluster.
pub const RING_PUSH: &str = "ring-push";
/// Maximum bytes of a request that starts a job. Rings of 48 MiB fit in, for instance those of 2^22
/// partitions and 5 replicas.
pub const JOB_REQUEST_BYTES_MAX: usize = 64 << 20;

/// Request to start a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum JobRequest {
    /// Compares all devices with the rings.
    Census {
        /// Pause between two pages, in milliseconds. Default: 5.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pause_ms: Option<u64>,
    },
    /// Moves a bucket's objects to its storage policy.
    Rewrite {
        /// Name of the bucket.
        bucket: String,
        /// Maximum bytes per second, at least 1 MiB. Default: unlimited while clients don't wait.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes_per_s: Option<u64>,
    },
    /// Wraps a bucket's data keys by the first master key.
    Rewrap {
        /// Name of the bucket.
        bucket: String,
        /// Maximum number of versions examined in a second, at least 1. Default: unlimited while
        /// clients don't wait.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        versions_per_s: Option<u32>,
    },
    /// Counts the usage of a bucket, and publishes the count. Its detail is a `QuotaLine`.
    BucketCount {
        /// Name of the bucket.
        bucket: String,
    },
    /// Returns votes to devices that lost their registers and that no peer can fill. Collection is
    /// held from then on.
    IndexAcceptLoss {
        /// Numbers of the devices that are given up: those that `index show` names.
        devices: Vec<u32>,
    },
    /// Finds objects in lost index partitions by their extents.
    IndexRebuild(RebuildRequest),
    /// Sends rings to all nodes of the cluster, and to those that the rings name. Proxies do it.
    RingPush {
        /// Ring files, at least one.
        rings: Vec<RingFile>,
    },
}

/// Scope of a rebuild.
#[expect(clippy::struct_excessive_bools, reason = "each is a consent of its own")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RebuildRequest {
    /// Name of the bucket. Default: all buckets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// Partition of the index ring. Default: those whose loss was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// Write entries. Default: a dry run.
    #[serde(default)]
    pub apply: bool,
    /// Accept extents of releases that didn't record encryption.
    #[serde(default)]
    pub without_facts: bool,
    /// Accept uploads whose parts 1 to n lie whole: they may not have been completed.
    #[serde(default)]
    pub uploads: bool,
    /// Accept the order of births where several bodies of a key have no certain one.
    #[serde(default)]
    pub latest: bool,
    /// Accept bodies that were born after the entry of their key, over this entry.
    #[serde(default)]
    pub over_older: bool,
}

/// Job of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobLine {
    /// Id of the job. A restart of the process forgets all jobs, and ids are not used again.
    pub id: String,
    /// `census`, `rewrite`, `rewrap`, `bucket-count`, `index-accept-loss`, `index-rebuild` or
    /// `ring-push`.
    pub kind: String,
    /// Name of the bucket that is rewritten, rewrapped or counted; scope of a rebuild; names and epochs
    /// of the rings that are pushed. Empty for other kinds.
    pub subject: String,
    /// `running`, `done`, `failed` or `cancelled`.
    pub state: String,
    /// Start of the job, in milliseconds since 1970.
    pub started_ms: u64,
    /// End of the job, in milliseconds since 1970. `None` while it runs.
    pub ended_ms: Option<u64>,
    /// Progress of the job.
    pub progress: JobProgress,
    /// Estimated seconds until the end. `None` if the time is unknown, or after the end.
    pub eta_s: Option<u64>,
    /// Reason for a failure.
    pub error: Option<String>,
    /// Figures of a rewrite, rewrap or rebuild; usage of a bucket, a census's report and an accepted
    /// loss, once it is done; the answers of nodes to rings. `None` in lists of jobs.
    pub detail: Option<Value>,
}

/// Progress of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobProgress {
    /// Work that is done.
    pub done: u64,
    /// All work. `None` if its amount is unknown.
    pub total: Option<u64>,
    /// Unit of both, such as `bytes`.
    pub unit: String,
    /// Progress as a sentence for people.
    pub text: String,
}

impl JobLine {
    /// Returns true until the job has ended.
    pub fn is_running(&self) -> bool {
        self.state == "running"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_their_kind_and_nothing_unknown() {
        let census: JobRequest = serde_json::from_str(r#"{"kind": "census"}"#).unwrap();
        assert_eq!(census, JobRequest::Census { pause_ms: None });
        let text = r#"{"kind":"rewrite","bucket":"b","bytes_per_s":5}"#;
        let rewrite: JobRequest = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&rewrite).unwrap(), text);
        let text = r#"{"kind":"bucket-count","bucket":"b"}"#;
        let count: JobRequest = serde_json::from_str(text).unwrap();
        assert_eq!(count, JobRequest::BucketCount { bucket: "b".into() });
        let text = r#"{"kind":"rewrap","bucket":"b","versions_per_s":7}"#;
        let rewrap: JobRequest = serde_json::from_str(text).unwrap();
        assert_eq!(rewrap, JobRequest::Rewrap { bucket: "b".into(), versions_per_s: Some(7) });
        assert_eq!(serde_json::to_string(&rewrap).unwrap(), text);
        let text = r#"{"kind":"index-rebuild","partition":3,"apply":true}"#;
        let JobRequest::IndexRebuild(rebuild) = serde_json::from_str(text).unwrap() else {
            panic!("another kind")
        };
        let expected = RebuildRequest { partition: Some(3), apply: true, ..Default::default() };
        assert_eq!(rebuild, expected);
        assert!(!RebuildRequest::default().apply, "a dry run is the default");
        let text = r#"{"kind":"index-accept-loss","devices":[1,2]}"#;
        let accept: JobRequest = serde_json::from_str(text).unwrap();
        assert_eq!(accept, JobRequest::IndexAcceptLoss { devices: vec![1, 2] });
        let misspelt = r#"{"kind":"index-rebuild","aply":true}"#;
        assert!(serde_json::from_str::<JobRequest>(misspelt).is_err());
        for wrong in [r#"{"kind":"other"}"#, r#"{"kind":"rewrite"}"#, r#"{"kind":"census","x":1}"#]
        {
            assert!(serde_json::from_str::<JobRequest>(wrong).is_err(), "{wrong}");
        }
    }
}
