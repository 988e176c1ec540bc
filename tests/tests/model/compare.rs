//! Comparison of a reply with the model's.

use martlet_tests::Reply;

use crate::expected::{Content, Expected, Row, Text};
use crate::names::Names;
use crate::xml::{Element, url_decoded};

/// Fields that `encoding-type=url` encodes.
const ENCODED: [&str; 8] = [
    "Key",
    "Prefix",
    "Delimiter",
    "Marker",
    "NextMarker",
    "StartAfter",
    "KeyMarker",
    "NextKeyMarker",
];

/// Properties of a request that its reply depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Form {
    /// The reply has no body.
    pub(crate) is_head: bool,
    /// Keys are encoded as in a URL.
    pub(crate) is_encoded: bool,
}

/// Compares a reply; the error describes the difference.
pub(crate) fn compare(
    expected: &Expected,
    reply: &Reply,
    names: &mut Names,
    form: Form,
) -> Result<(), String> {
    let code = code_of(reply);
    let has_body = !form.is_head && reply.status != 304;
    let is_one = expected
        .outcomes
        .iter()
        .any(|(status, wanted)| *status == reply.status && (!has_body || *wanted == code));
    if !is_one {
        let found = (reply.status, code);
        return Err(format!("reply {found:?}, model {:?}\n{}", expected.outcomes, reply.text()));
    }
    for (name, wanted) in &expected.headers {
        let actual = reply.headers.get(*name).map(|value| value.to_str().unwrap_or("no text"));
        names.check(wanted, actual).map_err(|it| format!("header {name} {it}"))?;
    }
    if form.is_head && !reply.body.is_empty() {
        return Err("HEAD has a body".into());
    }
    if !expected.is_success() {
        return Ok(());
    }
    match &expected.content {
        Content::Any => Ok(()),
        Content::Bytes(wanted) if *wanted == reply.body => Ok(()),
        Content::Bytes(wanted) => {
            Err(format!("{} other bytes, {} expected", reply.body.len(), wanted.len()))
        }
        Content::Document { fields, rows } => document(fields, rows, reply, names, form),
        Content::Contains(wanted) => {
            let text = reply.text();
            let has = canonical(&text).contains(&canonical(wanted));
            if has { Ok(()) } else { Err(format!("no {wanted} in {text}")) }
        }
    }
}

/// A document with its elements in the order of their names, for documents return them in an order
/// of their own.
fn canonical(text: &str) -> String {
    let Some(root) = Element::parse(text) else { return text.to_owned() };
    sorted(&root)
}

fn sorted(element: &Element) -> String {
    let mut children: Vec<String> = element.children.iter().map(sorted).collect();
    children.sort();
    let text = if children.is_empty() { element.text.as_str() } else { "" };
    format!("<{0}>{text}{1}</{0}>", element.name, children.concat())
}

/// Code of an error, or nothing.
fn code_of(reply: &Reply) -> String {
    let root = Element::parse(&reply.text()).filter(|it| it.name == "Error");
    root.and_then(|it| it.child("Code").map(str::to_owned)).unwrap_or_default()
}

/// Compares a document. S3 mixes versions and delete markers; here each kind has its own order
/// (docs/S3.md, Versions), so that rows are compared kind by kind.
fn document(
    fields: &[(&'static str, Text)],
    rows: &[Row],
    reply: &Reply,
    names: &mut Names,
    form: Form,
) -> Result<(), String> {
    let text = reply.text();
    let root = Element::parse(&text).ok_or_else(|| format!("no document: {text}"))?;
    check_fields(&root, fields, names, form).map_err(|it| format!("{it}\n{text}"))?;
    let mut actual: Vec<&Element> = rows_of(&root);
    let mut wanted: Vec<&Row> = rows.iter().collect();
    actual.sort_by(|one, other| one.name.cmp(&other.name));
    wanted.sort_by(|one, other| one.element.cmp(other.element));
    if actual.len() != wanted.len() {
        return Err(format!("{} rows, model {}: {wanted:?}\n{text}", actual.len(), wanted.len()));
    }
    for (element, row) in actual.into_iter().zip(wanted) {
        if element.name != row.element {
            return Err(format!("a {} instead of {row:?}\n{text}", element.name));
        }
        let checked = check_fields(element, &row.fields, names, form);
        checked.map_err(|it| format!("{}: {it}, model {row:?}\n{text}", row.element))?;
    }
    Ok(())
}

/// Rows of a document.
pub(crate) fn rows_of(root: &Element) -> Vec<&Element> {
    const ROWS: [&str; 9] = [
        "Contents",
        "CommonPrefixes",
        "Version",
        "DeleteMarker",
        "Upload",
        "Part",
        "Deleted",
        "Error",
        "Tag",
    ];
    let inner = root.children.iter().find(|it| it.name == "TagSet");
    let rows = inner.unwrap_or(root).children.iter();
    rows.filter(|it| ROWS.contains(&it.name.as_str())).collect()
}

fn check_fields(
    element: &Element,
    fields: &[(&'static str, Text)],
    names: &mut Names,
    form: Form,
) -> Result<(), String> {
    for (name, wanted) in fields {
        let mut actual = element.child(name).map(str::to_owned);
        if form.is_encoded && ENCODED.contains(name) {
            let decoded = |text: String| url_decoded(&text).ok_or(format!("{name} is {text:?}"));
            actual = actual.map(decoded).transpose()?;
        }
        names.check(wanted, actual.as_deref()).map_err(|it| format!("{name} {it}"))?;
    }
    Ok(())
}
