//! Checksums in documents for which s3s has no fields.
//!
//! s3s has fields for five algorithms, and refuses the elements of the other five. So a value of
//! another algorithm travels in the field of SHA256, after its algorithm's name and a [mark](MARK).
//! The HTTP pipeline puts it into that field before s3s parses a document ([`insert_values`]). Once
//! s3s has written a document, the value is moved to its own element ([`unload`]). Documents
//! without such values are unchanged.

use martlet_protocol::entry::ChecksumAlgorithm;

use super::name;

/// Separator of an algorithm's name and its value in the field of SHA256. No client's document
/// holds it: the HTTP pipeline refuses NUL.
const MARK: char = '\0';
/// Element that carries the values.
const CARRIER: &str = "ChecksumSHA256";

/// Returns true for an algorithm that s3s has no field for.
const fn is_carried(algorithm: ChecksumAlgorithm) -> bool {
    match algorithm {
        ChecksumAlgorithm::Crc32
        | ChecksumAlgorithm::Crc32c
        | ChecksumAlgorithm::Crc64Nvme
        | ChecksumAlgorithm::Sha1
        | ChecksumAlgorithm::Sha256 => false,
        ChecksumAlgorithm::Sha512
        | ChecksumAlgorithm::Md5
        | ChecksumAlgorithm::Xxhash64
        | ChecksumAlgorithm::Xxhash3
        | ChecksumAlgorithm::Xxhash128 => true,
    }
}

/// Carried algorithm of this name.
fn named(text: &str) -> Option<ChecksumAlgorithm> {
    ChecksumAlgorithm::ALL.into_iter().find(|known| is_carried(*known) && name(*known) == text)
}

/// Returns true if a document has carried values.
pub(crate) fn has_any(document: &str) -> bool {
    document.contains(MARK)
}

/// Encodes a value for the field of SHA256.
pub(crate) fn load(algorithm: ChecksumAlgorithm, value: &str) -> String {
    format!("{}{MARK}{value}", name(algorithm))
}

/// Value in the field of SHA256, and its algorithm.
pub(crate) fn loaded(field: String) -> (ChecksumAlgorithm, String) {
    let parts = field.split_once(MARK);
    match parts.and_then(|(algorithm, value)| Some((named(algorithm)?, value.to_owned()))) {
        Some(loaded) => loaded,
        None => (ChecksumAlgorithm::Sha256, field),
    }
}

/// Moves the elements that s3s lacks to that of SHA256. The document must have passed
/// inspection.
pub(crate) fn insert_values(document: &str) -> String {
    let mut pieces = document.split('<');
    let mut out = String::with_capacity(document.len() + 1024);
    out.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        out.push('<');
        let (slash, tag) = piece.strip_prefix('/').map_or(("", piece), |tag| ("/", tag));
        let end = tag.find(|c: char| c == '>' || c == '/' || c.is_ascii_whitespace());
        let (element, rest) = tag.split_at(end.unwrap_or(tag.len()));
        let Some(algorithm) = element.strip_prefix("Checksum").and_then(named) else {
            out.push_str(piece);
            continue;
        };
        out.push_str(slash);
        out.push_str(CARRIER);
        match rest.split_once('>') {
            Some((attributes, text)) if slash.is_empty() && !attributes.ends_with('/') => {
                out.push_str(attributes);
                out.push('>');
                out.push_str(&load(algorithm, text));
            }
            _ => out.push_str(rest),
        }
    }
    out
}

/// Moves the carried values in a reply's document to their own elements.
pub(crate) fn unload(document: &str) -> String {
    let open = format!("<{CARRIER}>");
    let close = format!("</{CARRIER}>");
    let mut pieces = document.split(&*open);
    let mut out = String::with_capacity(document.len());
    out.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let value = piece.split_once(&*close).and_then(|(field, rest)| {
            let (named, value) = field.split_once(MARK)?;
            Some((named, value, rest))
        });
        if let Some((named, value, rest)) = value {
            for text in ["<Checksum", named, ">", value, "</Checksum", named, ">", rest] {
                out.push_str(text);
            }
        } else {
            out.push_str(&open);
            out.push_str(piece);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_carried_into_a_document_and_out_of_it() {
        let document = "<Complete><Part><ChecksumXXHASH3>\nAA==</ChecksumXXHASH3></Part><Part>\
                        <ChecksumSHA256>BB==</ChecksumSHA256><ChecksumMD5 a='1'>CC==</ChecksumMD5 >\
                        <ChecksumSHA512/><ETag>ChecksumMD5</ETag></Part></Complete>";
        let carrying = insert_values(document);
        let expected = "<Complete><Part><ChecksumSHA256>XXHASH3\0\nAA==</ChecksumSHA256></Part><Part>\
                        <ChecksumSHA256>BB==</ChecksumSHA256><ChecksumSHA256 a='1'>MD5\0CC==\
                        </ChecksumSHA256 ><ChecksumSHA256/><ETag>ChecksumMD5</ETag></Part></Complete>";
        assert_eq!(carrying, expected);
        let plain = "<A><ChecksumSHA256>BB==</ChecksumSHA256><ChecksumCRC32>x</ChecksumCRC32></A>";
        assert_eq!((insert_values(plain), unload(plain)), (plain.to_owned(), plain.to_owned()));
        let sum = load(ChecksumAlgorithm::Xxhash128, "AA==-2");
        let reply = format!("<A><ChecksumSHA256>{sum}</ChecksumSHA256><B/></A>");
        assert_eq!(unload(&reply), "<A><ChecksumXXHASH128>AA==-2</ChecksumXXHASH128><B/></A>");
        assert_eq!(loaded(sum), (ChecksumAlgorithm::Xxhash128, "AA==-2".to_owned()));
        for own in ["BB==", "SHA1\0BB==", "x\0y"] {
            assert_eq!(loaded(own.to_owned()), (ChecksumAlgorithm::Sha256, own.to_owned()));
        }
    }
}
