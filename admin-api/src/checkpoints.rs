//! JSON messages about checkpoint rules and sets of a bucket.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Path of a bucket's checkpoint rules; PUT replaces them, DELETE removes them.
pub const RULES: &str = "/admin/v1/bucket/checkpoints";
/// Path of a bucket's sets, in pages; DELETE withdraws generations of one set.
pub const SETS: &str = "/admin/v1/bucket/checkpoints/sets";
/// Path of a dry run: what rules will withdraw of a bucket, in pages, or of one set's series.
pub const RETENTION: &str = "/admin/v1/bucket/checkpoints/retention";

/// Checkpoint rules of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RulesLine {
    /// Name of the bucket.
    pub bucket: String,
    /// The document, as it was set; none if the bucket has no rules.
    pub rules: Option<String>,
}

/// Page of the sets of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetPage {
    /// Sets in order of name.
    pub sets: Vec<SetLine>,
    /// Last set of this page, if more follow.
    pub next: Option<String>,
}

/// Checkpoint set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetLine {
    /// Name of the set: its folder.
    pub set: String,
    /// Generations in order of number.
    pub generations: Vec<GenerationLine>,
}

/// Generation of a checkpoint set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GenerationLine {
    /// Number of the generation.
    pub generation: u64,
    /// `pending`, `pinning`, `committed` or `removing`.
    pub state: String,
    /// Number of objects.
    pub objects: u64,
    /// Bytes of the objects together.
    pub bytes: u64,
    /// Time at which the objects were noted, in milliseconds since 1970.
    pub noted_ms: u64,
    /// End of the longest hold, in milliseconds since 1970; zero for none.
    pub held_until_ms: u64,
    /// Reason why the generation is pending or was withdrawn.
    pub reason: Option<String>,
}

/// Page of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RetentionPage {
    /// Generations that rules will withdraw, if nothing changes until then.
    pub withdrawals: Vec<RetiredLine>,
    /// Last set of this page, if more follow.
    pub next: Option<String>,
}

/// Generation that a rule will withdraw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RetiredLine {
    /// Name of the set.
    pub set: String,
    /// Number of the generation.
    pub generation: u64,
    /// Reason of the withdrawal.
    pub reason: String,
    /// Time from which it is done, in milliseconds since 1970; past times mean the next pass.
    pub due_ms: u64,
    /// True if the objects of the generation are deleted too.
    pub deletes_objects: bool,
}

/// Number of withdrawn generations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WithdrawnLine {
    /// Number of generations that left the view.
    pub withdrawn: u64,
}
