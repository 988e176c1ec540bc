//! Trust documents: the principals that may assume a role.
//!
//! Invariants:
//! * A request that no statement allows is refused, and a deny wins. A request whose steps are spent is
//!   refused.
//! * A requester with fewer rights than its account isn't admitted by an Allow for the account or
//!   for everyone: a role must not bypass a restriction. Such a requester must be named itself.
//! * A statement about one provider's tokens admits no other provider's tokens.

use std::collections::BTreeSet;

use super::bindings::{Bindings, BoundName};
use super::condition::Condition;
use super::context::Context;
use super::glob::{Atom, atoms, matches};
use super::json::Json;
use super::key::Key;
use super::malformed::MalformedPolicy;
use super::principal::Principals;
use super::requester::Requester;

/// Maximum size of a document in bytes.
const TRUST_BYTES_MAX: usize = 10 * 1024;
const VERSIONS: [&str; 2] = ["2012-10-17", "2008-10-17"];
/// Part of a provider's ARN before its name.
const PROVIDER: &str = ":oidc-provider/";

/// A way to assume a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AssumeMethod {
    AssumeRole,
    AssumeRoleWithWebIdentity,
}

/// A request to assume a role.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AssumeRequest<'a> {
    pub(crate) way: AssumeMethod,
    /// Signer of the request; anonymous for requests with a token.
    pub(crate) requester: &'a Requester,
    /// Provider of the token: the issuer's name without its scheme.
    pub(crate) provider: Option<&'a str>,
    pub(crate) context: &'a Context,
}

/// The trust document of a role.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trust(Vec<Statement>);

#[derive(Clone, Debug, PartialEq)]
struct Statement {
    is_allowing: bool,
    whom: TrustedPrincipal,
    actions: Vec<Vec<Atom>>,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq)]
enum TrustedPrincipal {
    Principals(Principals),
    Provider(String),
}

/// Name of a provider in trust documents: an issuer without its scheme.
pub(crate) fn provider_name(issuer: &str) -> &str {
    let name = issuer.strip_prefix("https://").or_else(|| issuer.strip_prefix("http://"));
    name.unwrap_or(issuer).trim_end_matches('/')
}

impl AssumeMethod {
    fn name(self) -> &'static str {
        match self {
            Self::AssumeRole => "sts:assumerole",
            Self::AssumeRoleWithWebIdentity => "sts:assumerolewithwebidentity",
        }
    }
}

impl Trust {
    /// Reads a document; refuses one that can't be evaluated.
    pub(crate) fn parse(text: &str) -> Result<Self, MalformedPolicy> {
        if text.len() > TRUST_BYTES_MAX {
            let message = format!("a trust document must have at most {TRUST_BYTES_MAX} bytes");
            return Err(MalformedPolicy::new(message));
        }
        let json = Json::parse(text).map_err(|error| MalformedPolicy::no_json(&error))?;
        let mut statements = None;
        for (name, json) in json.members().ok_or_else(syntax)? {
            match (name.as_str(), json) {
                ("Version", Json::Text(version)) if VERSIONS.contains(&version.as_str()) => {}
                ("Id", Json::Text(_)) => {}
                ("Version" | "Id", _) => return Err(syntax()),
                ("Statement", Json::List(list)) => statements = Some(list.as_slice()),
                ("Statement", one) => statements = Some(std::slice::from_ref(one)),
                _ => return Err(MalformedPolicy::new(format!("Unknown field {name}"))),
            }
        }
        let statements = statements.filter(|all| !all.is_empty());
        let statements =
            statements.ok_or_else(|| MalformedPolicy::new("Missing required field Statement"))?;
        let statements = statements.iter().zip(1..).map(|(json, number)| {
            Statement::parse(json).map_err(|error| error.in_statement(number))
        });
        statements.collect::<Result<_, _>>().map(Self)
    }

    /// Names of the principals in the document.
    pub(crate) fn names(&self) -> BTreeSet<BoundName> {
        let named = self.0.iter().filter_map(|one| match &one.whom {
            TrustedPrincipal::Principals(principals) => Some(principals),
            TrustedPrincipal::Provider(_) => None,
        });
        named.flat_map(Principals::names).collect()
    }

    /// Returns the document with its names bound to their holders at the time when it was put.
    pub(crate) fn bound(mut self, bindings: Option<&Bindings>) -> Self {
        for statement in &mut self.0 {
            if let (TrustedPrincipal::Principals(named), Some(bindings)) =
                (&mut statement.whom, bindings)
            {
                named.bind(bindings);
            }
        }
        self
    }

    /// True if the document permits the request to assume the role.
    pub(crate) fn admits(&self, taker: AssumeRequest<'_>) -> bool {
        let about = |allowing| {
            let mut all = self.0.iter().filter(move |one| one.is_allowing == allowing);
            all.any(|one| one.is_about(taker))
        };
        let is_admitted = about(true) && !about(false);
        is_admitted && taker.context.spend(1)
    }
}

impl Statement {
    fn parse(json: &Json) -> Result<Self, MalformedPolicy> {
        let (mut effect, mut whom, mut actions, mut conditions) = (None, None, None, None);
        for (name, json) in json.members().ok_or_else(syntax)? {
            match (name.as_str(), json) {
                ("Sid", Json::Text(_)) => {}
                ("Effect", Json::Text(text)) if text == "Allow" => effect = Some(true),
                ("Effect", Json::Text(text)) if text == "Deny" => effect = Some(false),
                ("Effect" | "Sid", _) => return Err(syntax()),
                ("Principal", json) => whom = Some(TrustedPrincipal::parse(json)?),
                ("Action", json) => actions = Some(parse_actions(json)?),
                ("Condition", json) => conditions = Some(json),
                _ => return Err(MalformedPolicy::new(format!("Unknown field {name}"))),
            }
        }
        let missing = |name: &str| MalformedPolicy::new(format!("Missing required field {name}"));
        let whom = whom.ok_or_else(|| missing("Principal"))?;
        let provider = match &whom {
            TrustedPrincipal::Provider(name) => Some(name.as_str()),
            TrustedPrincipal::Principals(_) => None,
        };
        let read_key = |text: &str| Key::of_trust(text, provider);
        let conditions = match conditions {
            None => Vec::new(),
            Some(json) => Condition::parse_all_by(json, true, &read_key)?,
        };
        Ok(Self {
            is_allowing: effect.ok_or_else(|| missing("Effect"))?,
            actions: actions.ok_or_else(|| missing("Action"))?,
            whom,
            conditions,
        })
    }

    fn is_about(&self, taker: AssumeRequest<'_>) -> bool {
        let is_named = match (&self.whom, taker.way) {
            (TrustedPrincipal::Principals(named), AssumeMethod::AssumeRole) => {
                let is_whole = !self.is_allowing || taker.requester.is_whole();
                let is_somebody = *taker.requester != Requester::Anonymous;
                is_somebody
                    && named.name(&taker.requester.subject())
                    && (is_whole || named.name_closely(&taker.requester.subject()))
            }
            (TrustedPrincipal::Provider(name), AssumeMethod::AssumeRoleWithWebIdentity) => {
                taker.provider == Some(name.as_str())
            }
            // A deny for everyone also denies tokens.
            (TrustedPrincipal::Principals(named), AssumeMethod::AssumeRoleWithWebIdentity) => {
                !self.is_allowing && named.has_everyone()
            }
            (TrustedPrincipal::Provider(_), AssumeMethod::AssumeRole) => false,
        };
        is_named
            && self.actions.iter().any(|pattern| matches(pattern, taker.way.name()))
            && self.conditions.iter().all(|one| one.holds(taker.context, self.is_allowing))
    }
}

impl TrustedPrincipal {
    fn parse(json: &Json) -> Result<Self, MalformedPolicy> {
        let wrong = || MalformedPolicy::new("Invalid principal in policy");
        let Some([(kind, named)]) = json.members() else {
            return Principals::parse(json).map(Self::Principals);
        };
        if kind != "Federated" {
            return Principals::parse(json).map(Self::Principals);
        }
        // One provider alone, so that conditions on its tokens apply to no other's.
        let names = named.texts().ok_or_else(wrong)?;
        let [name] = names.as_slice() else { return Err(wrong()) };
        let name = match name.split_once(PROVIDER) {
            Some((arn, name)) if arn.starts_with("arn:aws:iam::") => name,
            _ if name.starts_with("arn:") => return Err(wrong()),
            _ => name,
        };
        let name = provider_name(name);
        if name.is_empty() || name.contains('*') {
            return Err(wrong());
        }
        Ok(Self::Provider(name.to_owned()))
    }
}

fn parse_actions(json: &Json) -> Result<Vec<Vec<Atom>>, MalformedPolicy> {
    let wrong = || MalformedPolicy::new("Policy has invalid action");
    let read = |name: &&str| {
        let pattern: Vec<Atom> = atoms(&name.to_ascii_lowercase()).collect();
        let is_known = [AssumeMethod::AssumeRole, AssumeMethod::AssumeRoleWithWebIdentity]
            .iter()
            .any(|way| matches(&pattern, way.name()));
        is_known.then_some(pattern).ok_or_else(wrong)
    };
    json.texts().ok_or_else(wrong)?.iter().map(read).collect()
}

fn syntax() -> MalformedPolicy {
    MalformedPolicy::new("Invalid policy syntax.")
}

#[cfg(test)]
mod tests;
