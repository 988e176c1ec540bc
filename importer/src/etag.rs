//! ETags and checksums of an object: the claims of a store about the bytes, and their comparison.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use http::HeaderMap;

/// Kind of an ETag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ETagKind {
    /// MD5 of the bytes.
    Md5([u8; 16]),
    /// MD5 of the MD5s of this number of parts.
    Parts { md5: [u8; 16], parts: u64 },
    /// Any other.
    Opaque,
}

impl ETagKind {
    /// Classifies an ETag by its form, with or without quotes.
    pub(crate) fn of(etag: &str) -> Self {
        let etag = etag.trim_matches('"');
        let (digits, parts) = match etag.split_once('-') {
            Some((digits, parts)) => (digits, Some(parts)),
            None => (etag, None),
        };
        let mut md5 = [0; 16];
        if digits.len() != 32 || hex::decode_to_slice(digits, &mut md5).is_err() {
            return Self::Opaque;
        }
        match parts.map(str::parse) {
            None => Self::Md5(md5),
            Some(Ok(parts)) if parts > 0 => Self::Parts { md5, parts },
            Some(_) => Self::Opaque,
        }
    }
}

/// Checksum that covers the whole object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FullChecksum {
    pub(crate) algorithm: CrcAlgorithm,
    pub(crate) value: u64,
}

/// Header and algorithm of the checksums that can be combined from parts, the strongest first.
const CHECKSUMS: [(&str, CrcAlgorithm, usize); 3] = [
    ("x-amz-checksum-crc64nvme", CrcAlgorithm::Crc64Nvme, 8),
    ("x-amz-checksum-crc32c", CrcAlgorithm::Crc32Iscsi, 4),
    ("x-amz-checksum-crc32", CrcAlgorithm::Crc32IsoHdlc, 4),
];

impl FullChecksum {
    /// Returns all checksums of a reply that cover the whole object, the strongest first.
    pub(crate) fn all_of(headers: &HeaderMap) -> Vec<Self> {
        let text = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
        // Without a type, some stores return checksums of parts for objects in parts.
        let is_in_parts =
            matches!(ETagKind::of(text("etag").unwrap_or_default()), ETagKind::Parts { .. });
        let is_full = text("x-amz-checksum-type").map_or(!is_in_parts, |it| it == "FULL_OBJECT");
        if !is_full {
            return Vec::new();
        }
        let of = |(name, algorithm, bytes): (&str, CrcAlgorithm, usize)| {
            // A composite checksum ends in the number of its parts, which is no base64.
            let decoded = STANDARD.decode(text(name)?).ok().filter(|it| it.len() == bytes)?;
            let value = decoded.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            Some(Self { algorithm, value })
        };
        CHECKSUMS.into_iter().filter_map(of).collect()
    }
}

/// Claim of the source about an object's bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Claim {
    /// Checksum of the whole object.
    Checksum(FullChecksum),
    /// MD5 of the whole object.
    Md5([u8; 16]),
    /// MD5 of the parts' MD5s.
    Parts { md5: [u8; 16], parts: u64 },
    /// No claim that the importer can check.
    None,
}

impl Claim {
    /// Returns the claim of a reply's headers. With `has_opaque_etags`, no ETag is an MD5.
    pub(crate) fn of(headers: &HeaderMap, has_opaque_etags: bool) -> Self {
        let checksum = FullChecksum::all_of(headers).into_iter().next();
        match (checksum, reliable_etag(headers, has_opaque_etags)) {
            (Some(checksum), _) => Self::Checksum(checksum),
            (None, ETagKind::Md5(md5)) => Self::Md5(md5),
            (None, ETagKind::Parts { md5, parts }) => Self::Parts { md5, parts },
            (None, ETagKind::Opaque) => Self::None,
        }
    }
}

/// Returns the kind of a reply's ETag. Objects under keys of a key management service or of
/// customers have ETags that look like MD5s and are none.
pub(crate) fn reliable_etag(headers: &HeaderMap, has_opaque_etags: bool) -> ETagKind {
    let is_sealed = headers
        .get("x-amz-server-side-encryption")
        .is_some_and(|it| it.as_bytes().starts_with(b"aws:"))
        || headers.contains_key("x-amz-server-side-encryption-customer-algorithm");
    if is_sealed || has_opaque_etags {
        return ETagKind::Opaque;
    }
    ETagKind::of(&crate::client::etag_of(headers))
}

/// Result of a comparison by size and ETag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sameness {
    /// The bytes are equal.
    Same,
    /// The bytes differ.
    Different,
    /// The sizes are equal, and the ETags can't be compared.
    Unknown,
}

/// Size and ETag of an object in a listing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) size: u64,
    pub(crate) etag: &'a str,
}

/// Compares objects of two stores by size and ETag.
pub(crate) fn compare(source: Facts<'_>, target: Facts<'_>, has_opaque_etags: bool) -> Sameness {
    if source.size != target.size {
        return Sameness::Different;
    }
    if has_opaque_etags {
        return if source.size == 0 { Sameness::Same } else { Sameness::Unknown };
    }
    match (ETagKind::of(source.etag), ETagKind::of(target.etag)) {
        _ if source.size == 0 => Sameness::Same,
        (ETagKind::Md5(one), ETagKind::Md5(other)) if one == other => Sameness::Same,
        (ETagKind::Md5(_), ETagKind::Md5(_)) => Sameness::Different,
        (one @ ETagKind::Parts { .. }, other) if one == other => Sameness::Same,
        // Equal bytes in other parts have another ETag.
        _ => Sameness::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "d41d8cd98f00b204e9800998ecf8427e";
    const OTHER: &str = "0cc175b9c0f1b6a831c399e269772661";

    fn facts(size: u64, etag: &str) -> Facts<'_> {
        Facts { size, etag }
    }

    #[test]
    fn etags_are_classified_by_their_form() {
        assert!(matches!(ETagKind::of(MD5), ETagKind::Md5(_)));
        assert!(matches!(
            ETagKind::of(&format!("\"{MD5}-12\"")),
            ETagKind::Parts { parts: 12, .. }
        ));
        let odd =
            [format!("{MD5}-0"), format!("{MD5}-x"), format!("opaque-{MD5}"), MD5[1..].into()];
        for etag in odd.iter().map(String::as_str).chain([""]) {
            assert_eq!(ETagKind::of(etag), ETagKind::Opaque, "{etag}");
        }
    }

    #[test]
    fn objects_are_compared_by_size_and_etag() {
        let (many, other) = (format!("{MD5}-2"), format!("{OTHER}-2"));
        for (source, target, expected) in [
            (facts(5, MD5), facts(6, MD5), Sameness::Different),
            (facts(5, MD5), facts(5, MD5), Sameness::Same),
            (facts(5, MD5), facts(5, OTHER), Sameness::Different),
            (facts(5, &many), facts(5, &many), Sameness::Same),
            (facts(5, &many), facts(5, &other), Sameness::Unknown),
            (facts(5, &many), facts(5, MD5), Sameness::Unknown),
            (facts(5, "x"), facts(5, "x"), Sameness::Unknown),
            (facts(0, "x"), facts(0, "y"), Sameness::Same),
        ] {
            assert_eq!(compare(source, target, false), expected, "{source:?} {target:?}");
        }
        assert_eq!(compare(facts(5, MD5), facts(5, OTHER), true), Sameness::Unknown);
        assert_eq!(compare(facts(5, MD5), facts(6, OTHER), true), Sameness::Different);
    }

    #[test]
    fn claims_prefer_checksums_of_the_whole_object() {
        let mut headers = HeaderMap::new();
        headers.insert("etag", format!("\"{MD5}\"").parse().unwrap());
        assert!(matches!(Claim::of(&headers, false), Claim::Md5(_)));
        assert_eq!(Claim::of(&headers, true), Claim::None);
        headers.insert("x-amz-server-side-encryption", "AES256".parse().unwrap());
        assert!(matches!(Claim::of(&headers, false), Claim::Md5(_)));
        headers.insert("x-amz-server-side-encryption", "aws:kms".parse().unwrap());
        assert_eq!(Claim::of(&headers, false), Claim::None);
        headers.insert("x-amz-checksum-crc32c", "AAAAAQ==-3".parse().unwrap());
        assert_eq!(Claim::of(&headers, false), Claim::None);
        headers.insert("x-amz-checksum-crc32c", "AAAAAQ==".parse().unwrap());
        let expected = FullChecksum { algorithm: CrcAlgorithm::Crc32Iscsi, value: 1 };
        assert_eq!(Claim::of(&headers, false), Claim::Checksum(expected));
        headers.insert("x-amz-checksum-crc64nvme", "AAAAAAAAAAI=".parse().unwrap());
        let expected = FullChecksum { algorithm: CrcAlgorithm::Crc64Nvme, value: 2 };
        assert_eq!(Claim::of(&headers, false), Claim::Checksum(expected));
        headers.insert("etag", format!("\"{MD5}-2\"").parse().unwrap());
        headers.remove("x-amz-server-side-encryption");
        assert!(matches!(Claim::of(&headers, false), Claim::Parts { parts: 2, .. }));
        headers.insert("x-amz-checksum-type", "FULL_OBJECT".parse().unwrap());
        assert_eq!(Claim::of(&headers, false), Claim::Checksum(expected));
        headers.insert("x-amz-server-side-encryption", "aws:kms".parse().unwrap());
        headers.insert("x-amz-checksum-type", "COMPOSITE".parse().unwrap());
        assert_eq!(Claim::of(&headers, false), Claim::None);
    }
}
