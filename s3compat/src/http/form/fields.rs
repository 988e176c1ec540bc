//! Fields of a form, and the headers that they stand for.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::Tagging;
use s3s::xml::{Deserialize, Deserializer};

use super::super::{schema, xml};
use crate::messages;
use crate::operation::Operation;
use crate::refusal::Refusal;

/// Maximum bytes of all names and values together, as in S3.
const BYTES_MAX: usize = 20 * 1024;
const FILE_NAME: &str = "${filename}";

/// Fields that become headers of the PUT, with unchanged names.
pub(super) const PLAIN: [HeaderName; 6] =
    [CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES];
const ALSO_PLAIN: [&str; 4] = [
    "content-md5",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-storage-class",
    "x-amz-website-redirect-location",
];
const PLAIN_STARTS: [&str; 5] = [
    "x-amz-meta-",
    "x-amz-checksum-",
    "x-amz-grant-",
    "x-amz-object-lock-",
    "x-amz-server-side-encryption",
];
/// Fields that identify the form's signer.
const OF_SIGNATURE: [&str; 5] = [
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-signature",
];

/// Fields before the file, with names in lower case.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Adds a field. Refuses repeated names, values that are not UTF-8, and fields beyond the
    /// limit.
    pub(super) fn push(&mut self, name: &str, value: &[u8]) -> Result<(), Refusal> {
        let name = name.to_ascii_lowercase();
        if self.bytes() + name.len() + value.len() > BYTES_MAX {
            return Err(too_long());
        }
        if self.get(&name).is_some() {
            return Err(messages::FORM_FIELD_TWICE.named(name));
        }
        let value = std::str::from_utf8(value).map_err(|_| messages::FORM_FIELD_TEXT.refusal())?;
        self.0.push((name, value.to_owned()));
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Replaces `${filename}` by the last component of the file's path, in all fields but the
    /// policy. Fields that would exceed the limit are refused before they are expanded.
    pub(super) fn expand(&mut self, file_name: &str) -> Result<(), Refusal> {
        let name = file_name.rsplit(['/', '\\']).next().unwrap_or_default();
        let mut bytes = self.bytes();
        for (_, value) in self.0.iter_mut().filter(|(field, _)| field != "policy") {
            let times = value.matches(FILE_NAME).count();
            bytes = bytes - times * FILE_NAME.len() + times * name.len();
            if bytes > BYTES_MAX {
                return Err(too_long());
            }
            if times > 0 {
                *value = value.replace(FILE_NAME, name);
            }
        }
        Ok(())
    }

    /// Value of a field.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Names of all fields.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Writes the headers of the PUT that the form stands for.
    pub(super) fn write_headers(&self, headers: &mut HeaderMap) -> Result<(), Refusal> {
        for (name, value) in &self.0 {
            let (name, value) = match name.as_str() {
                "acl" => ("x-amz-acl", value.clone()),
                "tagging" => ("x-amz-tagging", tagging(value)?),
                name if is_plain(name) => (name, value.clone()),
                name if name.starts_with("x-amz-") && !OF_SIGNATURE.contains(&name) => {
                    return Err(Refusal::not_implemented(name));
                }
                _ => continue,
            };
            let invalid = || messages::FORM_HEADER.named(name);
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?;
            headers.insert(name, value);
        }
        Ok(())
    }
}

/// Refusal of fields that exceed the limit.
pub(super) fn too_long() -> Refusal {
    messages::FORM_FIELDS.refusal().with_detail("MaxPreDataLength", BYTES_MAX.to_string())
}

fn is_plain(name: &str) -> bool {
    PLAIN.iter().any(|plain| plain.as_str() == name)
        || ALSO_PLAIN.contains(&name)
        || PLAIN_STARTS.iter().any(|start| name.starts_with(start))
}

/// Converts a Tagging document to the value of `x-amz-tagging`.
fn tagging(document: &str) -> Result<String, Refusal> {
    let malformed = || messages::MALFORMED_XML.refusal();
    xml::inspect(document.as_bytes(), schema::root_of(Operation::PutObjectTagging))?;
    let document = xml::spell_out(Bytes::copy_from_slice(document.as_bytes()));
    let mut reader = Deserializer::new(&document);
    let tagging = Tagging::deserialize(&mut reader).map_err(|_| malformed())?;
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let pairs: Option<Vec<String>> = tagging
        .tag_set
        .iter()
        .map(|tag| Some(format!("{}={}", encode(tag.key.as_ref()?), encode(tag.value.as_ref()?))))
        .collect();
    pairs.map(|pairs| pairs.join("&")).ok_or_else(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Code;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::default();
        for (name, value) in pairs {
            fields.push(name, value.as_bytes()).unwrap();
        }
        fields
    }

    #[test]
    fn names_have_no_case_and_come_once() {
        let mut fields = fields(&[("kEy", "K")]);
        assert_eq!(fields.get("key"), Some("K"));
        assert_eq!(fields.push("KEY", b"x").unwrap_err().code, Code::InvalidArgument);
        assert_eq!(fields.push("a", b"\xff").unwrap_err().code, Code::MalformedPostRequest);
        let long = vec![b'x'; BYTES_MAX];
        assert_eq!(fields.push("b", &long).unwrap_err().code, Code::MaxPostPreDataLengthExceeded);
    }

    #[test]
    fn the_name_of_the_file_is_the_last_of_its_path() {
        for path in ["c.txt", "a/b/c.txt", "C:\\a\\c.txt"] {
            let mut fields = fields(&[("key", "u/${filename}"), ("policy", "${filename}")]);
            fields.expand(path).unwrap();
            assert_eq!(fields.get("key"), Some("u/c.txt"));
            assert_eq!(fields.get("policy"), Some("${filename}"));
        }
    }

    #[test]
    fn repeated_file_names_count_against_the_limit() {
        let mut many = fields(&[("key", &FILE_NAME.repeat(1500)), ("policy", FILE_NAME)]);
        many.expand("short").unwrap();
        assert_eq!(many.get("key"), Some("short".repeat(1500).as_str()));
        let mut many = fields(&[("key", &FILE_NAME.repeat(1500)), ("policy", FILE_NAME)]);
        let refusal = many.expand(&"n".repeat(40_000)).unwrap_err();
        assert_eq!(refusal.code, Code::MaxPostPreDataLengthExceeded);
    }

    #[test]
    fn fields_become_the_headers_of_a_put() {
        let tags =
            "<Tagging><TagSet><Tag><Key>a b</Key><Value>1&amp;2</Value></Tag></TagSet></Tagging>";
        let fields = fields(&[
            ("Content-Type", "text/plain"),
            ("acl", "private"),
            ("X-Amz-Meta-Colour", "blue"),
            ("x-amz-signature", "f00"),
            ("submit", "Send"),
            ("tagging", tags),
        ]);
        let mut headers = HeaderMap::new();
        fields.write_headers(&mut headers).unwrap();
        let mut found: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        found.sort_unstable();
        let expected = [
            ("content-type", "text/plain"),
            ("x-amz-acl", "private"),
            ("x-amz-meta-colour", "blue"),
            ("x-amz-tagging", "a%20b=1%262"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn no_field_makes_a_put_into_something_else() {
        let refused = |name, value| {
            let mut headers = HeaderMap::new();
            fields(&[(name, value)]).write_headers(&mut headers).unwrap_err().code
        };
        assert_eq!(refused("x-amz-copy-source", "/b/k"), Code::NotImplemented);
        assert_eq!(refused("x-amz-meta-a", "1\r\nx: 2"), Code::InvalidArgument);
        assert_eq!(refused("x-amz-meta-\u{e4}", "1"), Code::InvalidArgument);
        assert_eq!(refused("tagging", "<Tagging>"), Code::MalformedXml);
        assert_eq!(refused("tagging", "<TagSet/>"), Code::MalformedXml);
    }
}
