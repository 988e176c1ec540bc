//! Index of a policy's statements by the beginnings of their resources.
//!
//! A pattern matches only texts that begin with the pattern's text before its first wildcard or
//! variable. So one lookup for each length of such beginnings finds all statements that may apply
//! to a resource, however many others the policy has.

use std::collections::HashMap;

/// Positions of statements in their policy, by the beginnings of their resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ResourceIndex {
    by_beginning: HashMap<Box<[u8]>, Vec<usize>>,
    /// Lengths of the beginnings, each once.
    lengths: Vec<usize>,
    /// Statements that may apply to any resource.
    unlimited: Vec<usize>,
}

impl ResourceIndex {
    /// Adds a statement that applies only to resources with one of these beginnings.
    pub(super) fn add<'a>(&mut self, at: usize, beginnings: impl Iterator<Item = &'a str>) {
        for beginning in beginnings {
            let length = beginning.len();
            if !self.lengths.contains(&length) {
                self.lengths.push(length);
            }
            let statements = self.by_beginning.entry(beginning.as_bytes().into()).or_default();
            if statements.last() != Some(&at) {
                statements.push(at);
            }
        }
    }

    /// Adds a statement that may apply to any resource.
    pub(super) fn add_unlimited(&mut self, at: usize) {
        self.unlimited.push(at);
    }

    /// Steps of a search for the statements that may apply to a resource: one for each length of
    /// beginnings and 64 bytes of the resource.
    pub(super) fn steps(&self, resource: &str) -> usize {
        1 + self.lengths.len() * (1 + resource.len() / 64)
    }

    /// Positions of the statements that may apply to a resource. A statement with several
    /// resources may come more than once.
    pub(super) fn candidates<'a>(&'a self, resource: &'a str) -> impl Iterator<Item = usize> + 'a {
        let named = self
            .lengths
            .iter()
            .filter_map(|length| self.by_beginning.get(resource.as_bytes().get(..*length)?));
        named.flatten().chain(&self.unlimited).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_found_by_all_beginnings_of_a_resource() {
        let mut index = ResourceIndex::default();
        index.add(0, ["bucket/a", "bucket/a"].into_iter());
        index.add(1, ["bucket/", "other"].into_iter());
        index.add(2, std::iter::once(""));
        index.add_unlimited(3);
        let found = |resource: &str| {
            let mut found: Vec<usize> = index.candidates(resource).collect();
            found.sort_unstable();
            found
        };
        assert_eq!(found("bucket/abc"), [0, 1, 2, 3]);
        assert_eq!(found("bucket/b"), [1, 2, 3]);
        assert_eq!(found("bucket"), [2, 3]);
        assert_eq!(found("others"), [1, 2, 3]);
        assert_eq!(found(""), [2, 3]);
        assert_eq!(found("bücket/abc"), [2, 3], "lengths may end within a character");
    }
}
