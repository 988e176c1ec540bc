//! Statements of policies: effect, principals, actions, resources and conditions.

use std::collections::BTreeSet;

use super::action::{Action, Actions, ResourceKind};
use super::bindings::{Bindings, BoundName};
use super::condition::Condition;
use super::connection_needs::ConnectionNeeds;
use super::glob::{atoms, goes_beyond, matches_text};
use super::json::Json;
use super::malformed::MalformedPolicy;
use super::principal::Principals;
use super::question::{ACCOUNT_ARN, ARN, PolicyQuestion};
use super::resource_index::ResourceIndex;
use super::subject::Subject;
use super::template::Template;

/// Effect of a statement that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Allow,
    Deny,
}

/// One statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Statement {
    pub(super) sid: Option<String>,
    pub(super) effect: Effect,
    principals: ElementSet<Principals>,
    actions: ElementSet<Actions>,
    resources: ElementSet<Vec<Template>>,
    conditions: Vec<Condition>,
}

/// The named elements, or all except them.
#[derive(Clone, Debug, PartialEq)]
enum ElementSet<T> {
    Only(T),
    AllBut(T),
}

impl<T> ElementSet<T> {
    fn has(&self, is_named: impl Fn(&T) -> bool) -> bool {
        match self {
            Self::Only(named) => is_named(named),
            Self::AllBut(named) => !is_named(named),
        }
    }
}

/// Context for reading a statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatementContext<'a> {
    /// `None` for a policy that its holder carries.
    pub(super) bucket: Option<&'a str>,
    pub(super) has_variables: bool,
}

/// Elements of a statement.
const ELEMENTS: [&str; 9] = [
    "Action",
    "Condition",
    "Effect",
    "NotAction",
    "NotPrincipal",
    "NotResource",
    "Principal",
    "Resource",
    "Sid",
];

impl Statement {
    /// Reads a statement of a policy.
    pub(super) fn parse(
        json: &Json,
        reading: StatementContext<'_>,
    ) -> Result<Self, MalformedPolicy> {
        let members =
            json.members().ok_or_else(|| MalformedPolicy::new("Invalid policy syntax."))?;
        if let Some((name, _)) = members.iter().find(|(name, _)| !ELEMENTS.contains(&&**name)) {
            return Err(MalformedPolicy::new(format!("Unknown field {name}")));
        }
        let sid = match get(members, "Sid") {
            None => None,
            // Clients write a missing id as an empty one.
            Some(Json::Text(sid)) => Some(sid.clone()).filter(|sid| !sid.is_empty()),
            Some(_) => return Err(MalformedPolicy::new("Invalid policy syntax.")),
        };
        let effect = effect(members)?;
        let principals = principals(members, effect, reading)?;
        let actions = named(members, "Action", |json| {
            let names =
                json.texts().ok_or_else(|| MalformedPolicy::new("Policy has invalid action"))?;
            Actions::parse(&names)
        })?;
        let resources = named(members, "Resource", |json| resources(json, reading))?;
        let conditions = match get(members, "Condition") {
            None => Vec::new(),
            Some(json) => Condition::parse_all(json, reading.has_variables)?,
        };
        if let Some(bucket) = reading.bucket {
            check_fit(&actions, &resources, bucket)?;
        }
        Ok(Self { sid, effect, principals, actions, resources, conditions })
    }

    /// Names of the principals in the statement.
    pub(super) fn names(&self) -> BTreeSet<BoundName> {
        let (ElementSet::Only(named) | ElementSet::AllBut(named)) = &self.principals;
        named.names().collect()
    }

    /// Binds its names to their holders at the time when the policy was put.
    pub(super) fn bind(&mut self, bindings: &Bindings) {
        let (ElementSet::Only(named) | ElementSet::AllBut(named)) = &mut self.principals;
        named.bind(bindings);
    }

    /// True if the statement applies to the question. The cheapest test comes first.
    pub(super) fn is_about(&self, question: &PolicyQuestion<'_>) -> bool {
        let PolicyQuestion { arn, context, .. } = *question;
        let is_allowing = self.effect == Effect::Allow;
        self.has_action(question.action, question.is_new)
            && self.principals.has(|named| named.name(&question.subject))
            && self.resources.has(|named| named.iter().any(|it| it.matches(arn, context)))
            && self.conditions.iter().all(|one| one.holds(context, is_allowing))
    }

    /// Adds the statement, at this position of its policy, to an index by resources.
    pub(super) fn add_to(&self, index: &mut ResourceIndex, at: usize) {
        match &self.resources {
            ElementSet::Only(named) => index.add(at, named.iter().map(Template::beginning)),
            ElementSet::AllBut(_) => index.add_unlimited(at),
        }
    }

    /// Returns true if the statement may allow the requester an action, depending on resource and
    /// conditions.
    pub(super) fn may_allow(&self, subject: &Subject<'_>, action: Action) -> bool {
        self.effect == Effect::Allow
            && self.principals.has(|named| named.name(subject))
            && self.has_action(action, true)
    }

    /// True if the statement includes an action. A statement that allows writing objects and limits
    /// the tags that a request may set also allows setting them, on the object that the request writes
    /// (`is_new`): not on one that is there.
    fn has_action(&self, action: Action, is_new: bool) -> bool {
        self.actions.has(|named| named.name(action))
            || (is_new
                && action == Action::PutObjectTagging
                && self.effect == Effect::Allow
                && self.conditions.iter().any(Condition::reads_new_tags)
                && self.actions.has(|named| named.name(Action::PutObject)))
    }

    /// True if the statement allows everyone, without a condition that limits requesters to fixed
    /// ones.
    pub(super) fn is_public(&self) -> bool {
        self.effect == Effect::Allow
            && self.principals.has(Principals::has_everyone)
            && !self.conditions.iter().any(Condition::limits_requesters)
    }

    /// True if evaluation needs values of the request: the statement has conditions or variables.
    pub(super) fn reads_context(&self) -> bool {
        let (ElementSet::Only(named) | ElementSet::AllBut(named)) = &self.resources;
        !self.conditions.is_empty() || named.iter().any(|it| it.keys().next().is_some())
    }

    /// True if evaluation needs the tags of the existing object.
    pub(super) fn reads_existing_tags(&self) -> bool {
        let is_existing =
            |key: &super::key::Key| key.row.source == super::key::ValueSource::ExistingTag;
        self.conditions.iter().any(Condition::reads_existing_tags)
            || self.keys_of_resources().any(is_existing)
    }

    /// Properties of the connection that evaluation needs.
    pub(super) fn connection_needs(&self) -> ConnectionNeeds {
        let of_conditions = self.conditions.iter().map(Condition::connection_needs);
        of_conditions.chain(self.keys_of_resources().map(ConnectionNeeds::of_key)).collect()
    }

    /// Keys of the variables in the resources.
    fn keys_of_resources(&self) -> impl Iterator<Item = &super::key::Key> {
        let (ElementSet::Only(named) | ElementSet::AllBut(named)) = &self.resources;
        named.iter().flat_map(Template::keys)
    }
}

fn get<'a>(members: &'a [(String, Json)], name: &str) -> Option<&'a Json> {
    members.iter().find(|(other, _)| other == name).map(|(_, json)| json)
}

fn missing(name: &str) -> MalformedPolicy {
    MalformedPolicy::new(format!("Missing required field {name}"))
}

fn effect(members: &[(String, Json)]) -> Result<Effect, MalformedPolicy> {
    match get(members, "Effect").ok_or_else(|| missing("Effect"))? {
        Json::Text(text) if text == "Allow" => Ok(Effect::Allow),
        Json::Text(text) if text == "Deny" => Ok(Effect::Deny),
        Json::Text(text) => Err(MalformedPolicy::new(format!("Invalid effect: {text}"))),
        _ => Err(MalformedPolicy::new("Invalid policy syntax.")),
    }
}

/// Reads `name` or `Notname`. Exactly one of them must be present.
fn named<T>(
    members: &[(String, Json)],
    name: &str,
    read: impl Fn(&Json) -> Result<T, MalformedPolicy>,
) -> Result<ElementSet<T>, MalformedPolicy> {
    match (get(members, name), get(members, &format!("Not{name}"))) {
        (Some(json), None) => read(json).map(ElementSet::Only),
        (None, Some(json)) => read(json).map(ElementSet::AllBut),
        (None, None) => Err(missing(name)),
        (Some(_), Some(_)) => Err(MalformedPolicy::new("Invalid policy syntax.")),
    }
}

/// Reads the principals. A policy that its holder carries has none and applies to its holder.
fn principals(
    members: &[(String, Json)],
    effect: Effect,
    reading: StatementContext<'_>,
) -> Result<ElementSet<Principals>, MalformedPolicy> {
    if reading.bucket.is_some() {
        let principals = named(members, "Principal", Principals::parse)?;
        if effect == Effect::Allow && matches!(principals, ElementSet::AllBut(_)) {
            return Err(MalformedPolicy::new("Allow with NotPrincipal is not allowed"));
        }
        return Ok(principals);
    }
    if members.iter().any(|(name, _)| name.ends_with("Principal")) {
        return Err(MalformedPolicy::new("Policy document should not specify a principal."));
    }
    Ok(ElementSet::AllBut(Principals::none()))
}

fn resources(json: &Json, reading: StatementContext<'_>) -> Result<Vec<Template>, MalformedPolicy> {
    let wrong = || MalformedPolicy::new("Policy has invalid resource");
    let texts = json.texts().ok_or_else(wrong)?;
    let read = |text: &&str| {
        let template = Template::parse(text, reading.has_variables)?;
        let is_ours = if let Some(bucket) = reading.bucket {
            !scopes(&template, bucket).is_empty()
        } else {
            let pattern: Vec<_> = atoms(&template.widest()).collect();
            [ARN, ACCOUNT_ARN].iter().any(|beginning| goes_beyond(&pattern, beginning))
        };
        is_ours.then_some(template).ok_or_else(wrong)
    };
    texts.iter().map(read).collect()
}

/// Parts of the bucket that a resource may match: the bucket itself, its objects, or neither.
fn scopes(template: &Template, bucket: &str) -> Vec<ResourceKind> {
    let widest = template.widest();
    let mut scopes = Vec::new();
    if matches_text(&widest, &format!("{ARN}{bucket}")) {
        scopes.push(ResourceKind::Bucket);
    }
    let pattern: Vec<_> = atoms(&widest).collect();
    if goes_beyond(&pattern, &format!("{ARN}{bucket}/")) {
        scopes.push(ResourceKind::Object);
    }
    scopes
}

/// Refuses actions that don't apply to any of the resources.
fn check_fit(
    actions: &ElementSet<Actions>,
    resources: &ElementSet<Vec<Template>>,
    bucket: &str,
) -> Result<(), MalformedPolicy> {
    let (ElementSet::Only(actions), ElementSet::Only(resources)) = (actions, resources) else {
        return Ok(());
    };
    let scopes: Vec<ResourceKind> =
        resources.iter().flat_map(|template| scopes(template, bucket)).collect();
    if actions.all_fit(&scopes) {
        return Ok(());
    }
    Err(MalformedPolicy::new("Action does not apply to any resource(s) in statement"))
}
