//! Policy documents of buckets.
//!
//! Invariants:
//! * An accepted document is evaluated whole; documents that can't be are refused.
//! * A statement that denies wins over all that allow, in any order.
//! * A request whose steps are spent is denied, whatever else the policy has.
//! * A question that no statement applies to is undecided. The caller must take that as a denial,
//!   unless the requester owns the bucket.

use std::collections::BTreeSet;

use martlet_protocol::limits::POLICY_BYTES_MAX;

use super::action::Action;
use super::bindings::{Bindings, BoundName};
use super::connection_needs::ConnectionNeeds;
use super::json::Json;
use super::malformed::MalformedPolicy;
use super::question::{PolicyQuestion, ResourceArn};
use super::resource_index::ResourceIndex;
use super::statement::{Effect, Statement, StatementContext};
use super::subject::Subject;

/// Version that has variables.
const VERSION_WITH_VARIABLES: &str = "2012-10-17";
/// Version of documents that name none.
const VERSION_DEFAULT: &str = "2008-10-17";

/// A bucket's policy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policy {
    statements: Vec<Statement>,
    by_resource: ResourceIndex,
    reads_context: bool,
    reads_existing_tags: bool,
    connection_needs: ConnectionNeeds,
}

/// Answer of a policy to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyDecision {
    /// A statement allows it, and none denies it.
    Allow,
    /// A statement denies it.
    Deny,
    /// No statement applies to it.
    Undecided,
}

impl Policy {
    /// Reads a document that is put to `bucket`.
    pub(crate) fn parse(document: &[u8], bucket: &str) -> Result<Self, MalformedPolicy> {
        Self::parse_for(document, Some(bucket))
    }

    /// Reads a document without principals, which applies to its holder.
    pub(super) fn parse_own(document: &[u8]) -> Result<Self, MalformedPolicy> {
        Self::parse_for(document, None)
    }

    fn parse_for(document: &[u8], bucket: Option<&str>) -> Result<Self, MalformedPolicy> {
        if document.len() > POLICY_BYTES_MAX {
            return Err(MalformedPolicy::new(format!(
                "Normalized policy document exceeds the maximum allowed size of {POLICY_BYTES_MAX} \
                 bytes."
            )));
        }
        let is_object = document.trim_ascii_start().first() == Some(&b'{');
        let text = std::str::from_utf8(document).ok().filter(|_| is_object).ok_or_else(|| {
            MalformedPolicy::new("Policies must be valid JSON and the first byte must be '{'")
        })?;
        let json = Json::parse(text).map_err(|error| MalformedPolicy::no_json(&error))?;
        Self::from_json(&json, bucket)
    }

    fn from_json(json: &Json, bucket: Option<&str>) -> Result<Self, MalformedPolicy> {
        let syntax = || MalformedPolicy::new("Invalid policy syntax.");
        let (mut version, mut statements) = (VERSION_DEFAULT, None);
        for (name, json) in json.members().ok_or_else(syntax)? {
            match (name.as_str(), json) {
                ("Version", Json::Text(text)) => version = text,
                ("Id", Json::Text(_)) => {}
                ("Version" | "Id", _) => return Err(syntax()),
                ("Statement", json) => statements = Some(json),
                _ => return Err(MalformedPolicy::new(format!("Unknown field {name}"))),
            }
        }
        if ![VERSION_WITH_VARIABLES, VERSION_DEFAULT].contains(&version) {
            return Err(MalformedPolicy::new("The policy must contain a valid version string"));
        }
        let reading = StatementContext { bucket, has_variables: version == VERSION_WITH_VARIABLES };
        let statements = match statements {
            None => return Err(MalformedPolicy::new("Missing required field Statement")),
            Some(Json::List(list)) => list.as_slice(),
            Some(one) => std::slice::from_ref(one),
        };
        if statements.is_empty() {
            return Err(MalformedPolicy::new("Could not parse the policy: Statement is empty!"));
        }
        let statements = statements.iter().zip(1..).map(|(json, number)| {
            Statement::parse(json, reading).map_err(|error| error.in_statement(number))
        });
        let statements: Vec<Statement> = statements.collect::<Result<_, _>>()?;
        check_names(&statements)?;
        let reads_context = statements.iter().any(Statement::reads_context);
        let reads_existing_tags = statements.iter().any(Statement::reads_existing_tags);
        let connection_needs = statements.iter().map(Statement::connection_needs).collect();
        let mut by_resource = ResourceIndex::default();
        for (at, statement) in statements.iter().enumerate() {
            statement.add_to(&mut by_resource, at);
        }
        Ok(Self { statements, by_resource, reads_context, reads_existing_tags, connection_needs })
    }

    /// Names of the principals in the policy.
    pub(crate) fn names(&self) -> BTreeSet<BoundName> {
        self.statements.iter().flat_map(Statement::names).collect()
    }

    /// Returns the policy with its names bound to their holders at the time when it was put.
    pub(crate) fn bound(mut self, bindings: Option<&Bindings>) -> Self {
        if let Some(bindings) = bindings {
            self.statements.iter_mut().for_each(|statement| statement.bind(bindings));
        }
        self
    }

    /// Judges a question.
    pub(crate) fn evaluate(&self, question: &PolicyQuestion<'_>) -> PolicyDecision {
        let mut verdict = PolicyDecision::Undecided;
        if !question.context.spend(self.by_resource.steps(question.arn)) {
            return PolicyDecision::Deny;
        }
        for at in self.by_resource.candidates(question.arn) {
            let statement = &self.statements[at];
            if verdict == PolicyDecision::Allow && statement.effect == Effect::Allow {
                continue;
            }
            let is_about = statement.is_about(question);
            if !question.context.spend(1) {
                return PolicyDecision::Deny;
            }
            if is_about {
                match statement.effect {
                    Effect::Deny => return PolicyDecision::Deny,
                    Effect::Allow => verdict = PolicyDecision::Allow,
                }
            }
        }
        verdict
    }

    /// Returns true if a statement may allow the requester an action, depending on resource and
    /// conditions.
    pub(crate) fn may_allow(&self, subject: &Subject<'_>, action: Action) -> bool {
        self.statements.iter().any(|statement| statement.may_allow(subject, action))
    }

    /// True if the policy is public by S3's definition: an Allow for everyone without a condition
    /// that limits it to fixed requesters or networks.
    pub(crate) fn is_public(&self) -> bool {
        self.statements.iter().any(Statement::is_public)
    }

    /// True if evaluation needs values of the request: a statement has conditions or variables.
    pub(crate) fn reads_context(&self) -> bool {
        self.reads_context
    }

    /// True if evaluation for this object or its bucket may need values of the request.
    pub(crate) fn reads_context_of(&self, object: &ResourceArn) -> bool {
        let reads_context = |arn| {
            let mut candidates = self.by_resource.candidates(arn);
            candidates.any(|at| self.statements[at].reads_context())
        };
        self.reads_context && (reads_context(object.as_str()) || reads_context(object.bucket()))
    }

    /// True if evaluation needs the tags of the existing object.
    pub(crate) fn reads_existing_tags(&self) -> bool {
        self.reads_existing_tags
    }

    /// Properties of the connection that evaluation needs.
    pub(crate) fn connection_needs(&self) -> ConnectionNeeds {
        self.connection_needs
    }
}

/// Refuses a document with two statements of one id.
fn check_names(statements: &[Statement]) -> Result<(), MalformedPolicy> {
    let mut names = std::collections::HashSet::new();
    let mut sids = statements.iter().filter_map(|statement| statement.sid.as_deref());
    if sids.all(|sid| names.insert(sid)) {
        return Ok(());
    }
    Err(MalformedPolicy::new("Statement IDs (SID) in a single policy must be unique."))
}
