//! Bucket names in `Host` headers.

/// Bucket that `host` names under one of `domains`. A domain itself, an address or an unknown host
/// names none: then the path names the bucket.
pub(super) fn bucket_of(host: &str, domains: &[String]) -> Option<String> {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    domains.iter().find_map(|domain| {
        let at = name.len().checked_sub(domain.len() + 1)?;
        let (bucket, rest) = name.split_at_checked(at)?;
        let is_below = rest.strip_prefix('.')?.eq_ignore_ascii_case(domain);
        (is_below && !bucket.is_empty()).then(|| bucket.to_ascii_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_below_a_domain_name_a_bucket() {
        let domains = ["s3.example.com".to_owned(), "localhost".to_owned()];
        let bucket = |host| bucket_of(host, &domains);
        assert_eq!(bucket("photos.s3.example.com").as_deref(), Some("photos"));
        assert_eq!(bucket("a.b.S3.Example.COM:9000").as_deref(), Some("a.b"));
        assert_eq!(bucket("Photos.localhost").as_deref(), Some("photos"));
        for none in [
            "s3.example.com",
            "localhost:9000",
            "127.0.0.1:9000",
            "[::1]:9000",
            "photos.s3.example.org",
            "evils3.example.com",
            ".s3.example.com",
            "éé.example.com",
            "",
        ] {
            assert_eq!(bucket(none), None, "{none}");
        }
    }
}
