//! Texts of policies with `*`, `?` and variables: `${…}` stands for a value of the request.
//!
//! Invariants:
//! * Variables are read only in policies of the version that has them, and only keys of the closed
//!   list. Any other variable is refused when the policy is put.
//! * A value of a request never becomes a wildcard.
//! * Each comparison takes steps of the request first. Values are put into a text only if the result can be
//!   equal: no longer than what it is compared with, or paid for by steps.

use std::borrow::Cow;

use super::context::Context;
use super::glob::{Atom, Pattern, atoms, matches_counting};
use super::key::Key;
use super::malformed::MalformedPolicy;

/// A text of a policy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Template {
    parts: Box<[TemplatePart]>,
    /// The text as a pattern, if the text has wildcards and no variables.
    pattern: Option<Box<Pattern>>,
    /// Steps of one look at all parts.
    steps: usize,
}

/// Steps of a search for the value of a variable.
const VARIABLE_STEPS: usize = 16;

#[derive(Clone, Debug, PartialEq)]
enum TemplatePart {
    /// Literal text, wildcards included.
    Text(String),
    /// A character without its special meaning: `${*}`.
    Escaped(char),
    /// A value of the request, or else the default.
    Variable(Key, Option<String>),
}

impl TemplatePart {
    /// Steps of a look at the part.
    fn steps(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Escaped(_) => 1,
            Self::Variable(..) => VARIABLE_STEPS,
        }
    }
}

impl Template {
    /// Reads a text. `has_variables` is true if the policy's version has variables.
    pub(super) fn parse(text: &str, has_variables: bool) -> Result<Self, MalformedPolicy> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${").filter(|_| has_variables) {
            let (inner, after) = after.split_once('}').ok_or_else(|| unknown(after))?;
            parts.push(TemplatePart::Text(before.to_owned()));
            parts.push(variable(inner)?);
            rest = after;
        }
        parts.push(TemplatePart::Text(rest.to_owned()));
        parts.retain(|part| !matches!(part, TemplatePart::Text(text) if text.is_empty()));
        let steps = parts.iter().map(TemplatePart::steps).sum::<usize>() + 1;
        let mut template = Self { parts: parts.into(), pattern: None, steps };
        if template.keys().next().is_none() && !template.is_fixed() {
            let atoms = template.atoms(&Context::default());
            template.pattern = atoms.map(|atoms| Box::new(Pattern::new(&atoms)));
        }
        Ok(template)
    }

    /// True if the text has neither variables nor wildcards.
    pub(super) fn is_fixed(&self) -> bool {
        self.parts.iter().all(|part| match part {
            TemplatePart::Text(text) => !text.contains(['*', '?']),
            TemplatePart::Escaped(_) => true,
            TemplatePart::Variable(..) => false,
        })
    }

    /// Text for a request, with wildcards as ordinary characters. `None` if the request lacks a
    /// variable's value.
    pub(super) fn literal(&self, context: &Context) -> Option<Cow<'_, str>> {
        if let [TemplatePart::Text(text)] = &self.parts[..] {
            return Some(Cow::Borrowed(text));
        }
        let mut whole = String::new();
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => whole.push_str(text),
                TemplatePart::Escaped(character) => whole.push(*character),
                TemplatePart::Variable(key, default) => {
                    whole.push_str(variable_text(key, default.as_deref(), context)?);
                }
            }
        }
        Some(Cow::Owned(whole))
    }

    /// True if the template is `text`, with wildcards as ordinary characters.
    pub(super) fn is(&self, text: &str, context: &Context) -> bool {
        if let [TemplatePart::Text(only)] = &self.parts[..] {
            return context.spend(1) && only == text;
        }
        context.spend(self.steps)
            && self.bytes(context) == Some(text.len())
            && context.spend(text.len())
            && self.literal(context).is_some_and(|literal| literal == text)
    }

    /// As [`Self::is`], in any case.
    pub(super) fn is_in_any_case(&self, text: &str, context: &Context) -> bool {
        // Letters may change their length with their case.
        let bytes = |own: usize| own.saturating_add(text.len());
        context.spend(self.steps)
            && self.bytes(context).is_some_and(|own| context.spend(bytes(own)))
            && self
                .literal(context)
                .is_some_and(|literal| literal.to_lowercase() == text.to_lowercase())
    }

    /// True if the template matches `text`.
    pub(super) fn matches(&self, text: &str, context: &Context) -> bool {
        if let Some(pattern) = &self.pattern {
            let mut steps = 1;
            let is_match = !context.is_spent() && pattern.matches(text, &mut steps);
            return context.spend(steps) && is_match;
        }
        if self.is_fixed() {
            return self.is(text, context);
        }
        if !context.spend(self.steps) {
            return false;
        }
        // Each other character than a star matches at least one byte.
        let least = self.bytes(context).map(|bytes| bytes - self.stars());
        if least.is_none_or(|least| least > text.len()) {
            return false;
        }
        let mut steps = 0;
        let is_match =
            self.atoms(context).is_some_and(|pattern| matches_counting(&pattern, text, &mut steps));
        context.spend(steps) && is_match
    }

    /// Bytes of the text for a request; `None` if the request lacks a variable's value.
    fn bytes(&self, context: &Context) -> Option<usize> {
        let mut bytes = 0_usize;
        for part in &self.parts {
            let more = match part {
                TemplatePart::Text(text) => text.len(),
                TemplatePart::Escaped(character) => character.len_utf8(),
                TemplatePart::Variable(key, default) => {
                    variable_text(key, default.as_deref(), context)?.len()
                }
            };
            bytes = bytes.saturating_add(more);
        }
        Some(bytes)
    }

    /// Number of stars.
    fn stars(&self) -> usize {
        let stars = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.bytes().filter(|byte| *byte == b'*').count(),
            TemplatePart::Escaped(_) | TemplatePart::Variable(..) => 0,
        };
        self.parts.iter().map(stars).sum()
    }

    /// The text as a pattern, with the request's values; `None` if a value is missing.
    fn atoms(&self, context: &Context) -> Option<Vec<Atom>> {
        let mut pattern = Vec::with_capacity(64);
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => pattern.extend(atoms(text)),
                TemplatePart::Escaped(character) => {
                    pattern.extend(character.to_string().bytes().map(Atom::Byte));
                }
                TemplatePart::Variable(key, default) => {
                    let value = variable_text(key, default.as_deref(), context)?;
                    pattern.extend(value.bytes().map(Atom::Byte));
                }
            }
        }
        Some(pattern)
    }

    /// Text with which everything begins that the template matches.
    pub(super) fn beginning(&self) -> &str {
        match self.parts.first() {
            Some(TemplatePart::Text(text)) => text.split(['*', '?']).next().unwrap_or_default(),
            _ => "",
        }
    }

    /// A pattern that matches everything the template can match, with variables as `*`.
    pub(super) fn widest(&self) -> String {
        let parts = self.parts.iter().map(|part| match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Escaped(_) => "?".to_owned(),
            TemplatePart::Variable(..) => "*".to_owned(),
        });
        parts.collect()
    }

    /// Keys of the variables.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Variable(key, _) => Some(key),
            _ => None,
        })
    }
}

fn variable_text<'a>(key: &Key, default: Option<&'a str>, context: &'a Context) -> Option<&'a str> {
    match context.get(key) {
        [only] => Some(only),
        // Of several values none can be chosen.
        _ => default,
    }
}

fn variable(inner: &str) -> Result<TemplatePart, MalformedPolicy> {
    if let "*" | "?" | "$" = inner {
        return Ok(TemplatePart::Escaped(char::from(inner.as_bytes()[0])));
    }
    let (name, default) = match inner.split_once(',') {
        None => (inner, None),
        Some((name, default)) => {
            let default =
                default.trim().strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
            (name, Some(default.ok_or_else(|| unknown(inner))?.to_owned()))
        }
    };
    let key = Key::parse(name.trim()).ok_or_else(|| unknown(inner))?;
    Ok(TemplatePart::Variable(key, default))
}

fn unknown(inner: &str) -> MalformedPolicy {
    MalformedPolicy::new(format!("Policy has an invalid variable: {inner}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Template {
        Template::parse(text, true).unwrap()
    }

    fn context(name: &str) -> Context {
        Context::default().with("aws:username", name)
    }

    #[test]
    fn policy_variables_take_values_of_the_request() {
        let home = template("home/${aws:username}/*");
        assert!(home.matches("home/bob/x", &context("bob")));
        assert!(!home.matches("home/alice/x", &context("bob")));
        assert!(!home.matches("home//x", &Context::default()));
        let guest = template("home/${aws:username, 'guest'}");
        assert!(guest.matches("home/guest", &Context::default()));
        assert_eq!(guest.literal(&context("bob")).unwrap(), "home/bob");
        assert_eq!(home.literal(&Context::default()), None);
    }

    #[test]
    fn a_name_is_no_wildcard() {
        let home = template("home/${aws:username}/*");
        assert!(!home.matches("home/alice/x", &context("*")));
        assert!(home.matches("home/*/x", &context("*")));
        let star = template("a${*}b${?}${$}");
        assert!(star.matches("a*b?$", &Context::default()));
        assert!(!star.matches("axb?$", &Context::default()));
    }

    #[test]
    fn old_policies_have_no_variables() {
        let old = Template::parse("home/${aws:username}", false).unwrap();
        assert!(old.matches("home/${aws:username}", &context("bob")));
        assert!(old.is_fixed());
        assert!(!template("home/${aws:username}").is_fixed());
        assert!(!template("a*").is_fixed() && !template("a?").is_fixed());
        assert!(template("a${*}").is_fixed());
    }

    #[test]
    fn all_matches_begin_alike() {
        for (text, beginning) in [
            ("home/x", "home/x"),
            ("home/*", "home/"),
            ("home/?x", "home/"),
            ("home/${aws:username}/x", "home/"),
            ("home/${*}/x", "home/"),
            ("${aws:username}", ""),
            ("*", ""),
            ("", ""),
        ] {
            assert_eq!(template(text).beginning(), beginning, "{text}");
        }
        assert_eq!(Template::parse("a${x*", false).unwrap().beginning(), "a${x");
    }

    #[test]
    fn unknown_policy_variables_are_refused() {
        for text in ["${aws:nothing}", "${aws:username", "${aws:username, guest}", "${}"] {
            assert!(Template::parse(text, true).is_err(), "{text}");
        }
        assert_eq!(template("a${aws:username}b${*}").widest(), "a*b?");
    }
}
