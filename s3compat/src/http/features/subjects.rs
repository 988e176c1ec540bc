//! First words of the names of S3's headers. They separate unknown headers that may request
//! something from those that S3 ignores.

/// First words of the names of S3's headers. An unknown header with one of these words may request
/// something.
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

/// Returns true if an unknown header may request a feature of S3.
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
        // These headers describe the sender and the path of a request, and request nothing.
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
