//! What the names of S3's headers begin with. Of the headers that nobody here knows, these tell those that
//! may ask for something from those that S3 passes over.

/// What S3's headers speak of: the first words of their names. Another header of one of these may ask
/// for something.
const SUBJECTS: &[&str] = &[
    "abort",
    "acl",
    "api",
    "bucket",
    "bypass",
    "checksum",
    "client",
    "confirm",
    "content",
    "copy",
    "create",
    "date",
    "decoded",
    "delete",
    "encryption",
    "error",
    "expected",
    "expiration",
    "expires",
    "function",
    "fwd",
    "grant",
    "id",
    "if",
    "lock",
    "max",
    "metadata",
    "mfa",
    "missing",
    "mp",
    "object",
    "optional",
    "outpost",
    "part",
    "rdma",
    "rename",
    "replication",
    "request",
    "restore",
    "retention",
    "sdk",
    "security",
    "server",
    "skip",
    "source",
    "sse",
    "storage",
    "tagging",
    "trailer",
    "transition",
    "version",
    "website",
    "write",
];

/// Whether a header that isn't known may ask for something that S3 does.
pub(super) fn may_matter(name: &str) -> bool {
    let words = name.strip_prefix("x-amz-").unwrap_or(name);
    SUBJECTS.binary_search(&words.split('-').next().unwrap_or(words)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::{KNOWN, KNOWN_VALUES};
    use super::*;

    #[test]
    fn the_list_is_sorted_and_knows_all_subjects_of_what_is_understood() {
        assert!(SUBJECTS.is_sorted());
        // Who sent a request and by what way is asked for by none of these.
        let of_senders = ["x-amz-cf-id", "x-amz-user-agent"];
        let names = KNOWN.iter().chain(KNOWN_VALUES.iter().map(|(name, _)| name));
        for name in names.filter(|name| !of_senders.contains(name)) {
            assert!(may_matter(name), "{name}");
        }
    }

    #[test]
    fn the_first_word_counts() {
        assert!(may_matter("x-amz-acl") && may_matter("x-amz-object-something-new"));
        for name in ["x-amz-foo", "x-amz-foo-acl", "x-amz-", "x-amz-aclx"] {
            assert!(!may_matter(name), "{name}");
        }
    }
}
