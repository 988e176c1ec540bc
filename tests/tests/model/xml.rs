//! A small parser of reply documents.

/// An element: its text if it has no children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) children: Vec<Element>,
}

impl Element {
    /// Parses a document; none if it is malformed.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim_start_matches('\u{feff}').trim_start();
        if rest.starts_with("<?") {
            rest = rest.split_once("?>")?.1;
        }
        let (root, rest) = element(rest.trim_start())?;
        rest.trim().is_empty().then_some(root)
    }

    pub(crate) fn child(&self, name: &str) -> Option<&str> {
        self.children.iter().find(|it| it.name == name).map(|it| it.text.as_str())
    }
}

fn element(text: &str) -> Option<(Element, &str)> {
    let (tag, mut rest) = text.strip_prefix('<')?.split_once('>')?;
    let (tag, is_closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
    let name = tag.split_whitespace().next()?.to_owned();
    let mut found = Element { name, ..Element::default() };
    if is_closed {
        return Some((found, rest));
    }
    loop {
        let (before, _) = rest.split_once('<')?;
        found.text.push_str(&unescaped(before)?);
        rest = &rest[before.len()..];
        if let Some(end) = rest.strip_prefix("</") {
            let (name, rest) = end.split_once('>')?;
            return (name.trim_end() == found.name).then_some((found, rest));
        }
        let (child, after) = element(rest)?;
        found.children.push(child);
        rest = after;
    }
}

fn unescaped(text: &str) -> Option<String> {
    let mut pieces = text.split('&');
    let mut out = pieces.next()?.to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once(';')?;
        out.push(match name {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "quot" => '"',
            "apos" => '\'',
            number => {
                let number = number.strip_prefix('#')?;
                let code = match number.strip_prefix('x') {
                    Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                    None => number.parse().ok()?,
                };
                char::from_u32(code)?
            }
        });
        out.push_str(rest);
    }
    Some(out)
}

/// Decodes a text of `encoding-type=url`.
pub(crate) fn url_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_and_malformed_ones_are_none() {
        let document = "<?xml version=\"1.0\"?>\n<a x=\"y\"><b>1 &lt;&#x41;</b><c/></a>";
        let root = Element::parse(document).unwrap();
        assert_eq!(
            (root.child("b"), root.child("c"), root.child("d")),
            (Some("1 <A"), Some(""), None)
        );
        for wrong in ["<a>", "<a></b>", "<a>&x;</a>", "<a/><b/>", "a"] {
            assert_eq!(Element::parse(wrong), None, "{wrong}");
        }
        assert_eq!(url_decoded("a%2Fb+c").unwrap(), "a/b c");
    }
}
