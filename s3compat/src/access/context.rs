//! Properties of a request that policies can evaluate.

use http::HeaderName;

use super::key::{Key, KeyDefinition, ValueSource};
use super::step_budget::StepBudget;

/// Key of the algorithm of a customer's key.
const CUSTOMER_ALGORITHM: &str = "s3:x-amz-server-side-encryption-customer-algorithm";

/// Values of a request, under the names of the closed list of condition keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Context {
    /// A request gives some ten keys, so that a list is searched faster than a map.
    values: Vec<KeyValues>,
    is_part: bool,
    budget: StepBudget,
}

/// Values of one key.
#[derive(Clone, Debug, PartialEq)]
struct KeyValues {
    name: &'static str,
    tag: Option<String>,
    values: Vec<String>,
}

impl Context {
    /// Returns the context with one more value of `key`.
    ///
    /// # Panics
    /// If the key doesn't exist.
    #[cfg(test)]
    pub(crate) fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        let key = Key::parse(key).expect("callers pass keys of the list");
        self.values_of(key.row.name, key.tag.as_deref()).push(value.into());
        self
    }

    /// Adds one value of `key`.
    ///
    /// # Panics
    /// If the key doesn't exist.
    pub(crate) fn add(&mut self, key: &str, value: impl Into<String>) {
        self.values_of(listed(key), None).push(value.into());
    }

    /// Sets the only value of `key`, replacing earlier values.
    ///
    /// # Panics
    /// If the key doesn't exist.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<String>) {
        *self.values_of(listed(key), None) = vec![value.into()];
    }

    /// Removes the values of `key`.
    pub(crate) fn forget(&mut self, key: &'static str) {
        self.values.retain(|it| it.name != key);
    }

    /// Adds one value of a key that only trust documents use.
    pub(crate) fn add_trust(&mut self, key: &'static str, value: impl Into<String>) {
        self.values_of(key, None).push(value.into());
    }

    /// Context of the source of a copy: without the properties of the new object, and without what the
    /// request names for its target alone (a version, entity tags, a customer's key). `algorithm` is
    /// that of the customer's key of the source. Both contexts have the same steps left.
    pub(crate) fn of_source(&self, algorithm: Option<&str>) -> Self {
        let mut source = self.clone();
        source.is_part = false;
        source.forget_new_objects();
        for name in ["s3:VersionId", "s3:if-match", "s3:if-none-match", CUSTOMER_ALGORITHM] {
            source.forget(name);
        }
        if let Some(algorithm) = algorithm {
            source.set(CUSTOMER_ALGORITHM, algorithm);
        }
        source
    }

    /// Removes the properties of a new object. Requests that make none may still name them.
    pub(crate) fn forget_new_objects(&mut self) {
        self.values.retain(|it| {
            !KeyDefinition::named(it.name).is_some_and(KeyDefinition::is_of_new_objects)
        });
    }

    /// Takes steps of the evaluation. Returns false if none is left: the request is to be denied.
    pub(super) fn spend(&self, steps: usize) -> bool {
        self.budget.spend(steps)
    }

    /// True if no step is left: the request is to be denied.
    pub(super) fn is_spent(&self) -> bool {
        self.budget.left() == 0
    }

    /// Number of steps that are left.
    #[cfg(test)]
    pub(crate) fn steps_left(&self) -> usize {
        self.budget.left()
    }

    /// Adds the steps of a request with so many keys.
    pub(crate) fn allow_keys(&self, keys: usize) {
        self.budget.add_keys(keys);
    }

    /// Sets the tags that the request sets, replacing earlier ones.
    pub(crate) fn set_tags<'a>(&mut self, tags: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.forget("s3:RequestObjectTag");
        self.forget("s3:RequestObjectTagKeys");
        for (name, value) in tags {
            self.add_tag("s3:RequestObjectTag", name, value);
            self.add("s3:RequestObjectTagKeys", name);
        }
    }

    /// Sets the tags of the existing object, replacing earlier ones.
    pub(crate) fn set_existing<'a>(&mut self, tags: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.forget("s3:ExistingObjectTag");
        for (name, value) in tags {
            self.add_tag("s3:ExistingObjectTag", name, value);
        }
    }

    fn add_tag(&mut self, key: &'static str, name: &str, value: &str) {
        self.values_of(key, Some(name)).push(value.to_owned());
    }

    /// Values of a key, to be changed.
    fn values_of(&mut self, name: &'static str, tag: Option<&str>) -> &mut Vec<String> {
        let at = self.position(name, tag).unwrap_or_else(|| {
            let tag = tag.map(str::to_owned);
            self.values.push(KeyValues { name, tag, values: Vec::new() });
            self.values.len() - 1
        });
        &mut self.values[at].values
    }

    fn position(&self, name: &str, tag: Option<&str>) -> Option<usize> {
        self.values.iter().position(|it| it.name == name && it.tag.as_deref() == tag)
    }

    /// Marks the request as one about a part of an upload. The properties of the new object were
    /// given, and judged, when the upload began.
    pub(crate) fn set_part(&mut self) {
        self.is_part = true;
    }

    /// Reads headers and query parameters, by the list of keys.
    pub(crate) fn read<'a>(
        &mut self,
        header: impl Fn(&'static HeaderName) -> Option<&'a str>,
        query: impl Fn(&'static str) -> Option<&'a str>,
    ) {
        for row in &super::key::KEYS {
            let said = match &row.source {
                ValueSource::Header(name) | ValueSource::ObjectHeader(name) => header(name),
                ValueSource::Query(name) => query(name),
                _ => None,
            };
            if let Some(said) = said {
                *self.values_of(row.name, None) = vec![said.to_owned()];
            }
        }
    }

    /// Values of a key; empty if the request gives none.
    pub(super) fn get(&self, key: &Key) -> &[String] {
        let at = self.position(key.row.name, key.tag.as_deref());
        at.map_or(&[], |at| &self.values[at].values)
    }

    /// True if the key was judged when the upload began.
    pub(super) fn is_settled(&self, key: &Key) -> bool {
        self.is_part && key.is_of_new_objects()
    }
}

/// Name of a key that is no key of tags, as the list has it.
fn listed(key: &str) -> &'static str {
    KeyDefinition::named(key).expect("callers pass keys of the list").name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get<'a>(context: &'a Context, key: &str) -> &'a [String] {
        context.get(&Key::parse(key).unwrap())
    }

    #[test]
    fn headers_and_queries_are_read_by_the_list() {
        let mut context = Context::default();
        context.read(
            |name| (name == "x-amz-acl").then_some("private"),
            |name| (name == "prefix").then_some("a/"),
        );
        assert_eq!(get(&context, "s3:x-amz-acl"), ["private"]);
        assert_eq!(get(&context, "s3:prefix"), ["a/"]);
        assert!(get(&context, "s3:delimiter").is_empty());
    }

    #[test]
    fn the_source_of_a_copy_has_no_property_of_the_new_object() {
        let mut context = Context::default()
            .with("s3:x-amz-acl", "private")
            .with("s3:object-lock-mode", "GOVERNANCE")
            .with("s3:object-lock-remaining-retention-days", "7")
            .with("s3:VersionId", "3")
            .with("s3:if-match", "*")
            .with(CUSTOMER_ALGORITHM, "AES256")
            .with("aws:username", "bob");
        context.set_tags([("a", "1")]);
        context.set_part();
        let acl = Key::parse("s3:x-amz-acl").unwrap();
        assert!(context.is_settled(&acl));
        assert_eq!(context.of_source(None), Context::default().with("aws:username", "bob"));
        assert!(!context.of_source(None).is_settled(&acl));
        let source = context.of_source(Some("AES256"));
        assert_eq!(get(&source, CUSTOMER_ALGORITHM), ["AES256"]);
        source.spend(7);
        assert_eq!(context.steps_left(), source.steps_left(), "both share their steps");
    }

    #[test]
    fn later_tags_replace_earlier_ones() {
        let mut context = Context::default();
        for value in ["of the head", "of the body"] {
            context.set_tags([("a", value)]);
            context.set_existing([("b", value)]);
        }
        assert_eq!(get(&context, "s3:RequestObjectTag/a"), ["of the body"]);
        assert_eq!(get(&context, "s3:RequestObjectTagKeys"), ["a"]);
        assert_eq!(get(&context, "s3:ExistingObjectTag/b"), ["of the body"]);
    }

    #[test]
    fn tags_are_named_by_their_keys() {
        let mut context = Context::default();
        context.set_tags([("a", "1"), ("B/c", "2")]);
        context.set_existing([("a", "9")]);
        assert_eq!(get(&context, "s3:RequestObjectTag/B/c"), ["2"]);
        assert_eq!(get(&context, "s3:RequestObjectTagKeys"), ["a", "B/c"]);
        assert_eq!(get(&context, "s3:ExistingObjectTag/a"), ["9"]);
        assert_eq!(get(&context, "s3:RequestObjectTag/a"), ["1"]);
        assert!(get(&context, "s3:ExistingObjectTag/B/c").is_empty());
    }
}
