//! Replies as the model expects them.

use bytes::Bytes;

use crate::operation::{Made, Step};

/// A status, and the code of an error. A success has no code.
pub(crate) type Outcome = (u16, &'static str);

/// Id of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VersionId {
    Null,
    Made(Made),
}

/// Text of a header or an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    Is(String),
    Version(VersionId),
    /// Id of the upload that an operation began.
    Upload(Step),
    /// Time of a write, by its position among all writes: times follow that order.
    Modified(u64),
    Present,
    Absent,
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::Is(text.to_owned())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Is(text)
    }
}

/// An element of a document, with the texts of its children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) element: &'static str,
    pub(crate) fields: Vec<(&'static str, Text)>,
}

/// Body of a reply.
#[derive(Clone, Debug, Default)]
pub(crate) enum Content {
    #[default]
    Any,
    Bytes(Bytes),
    /// Texts directly below the root; rows below the root, in their order.
    Document {
        fields: Vec<(&'static str, Text)>,
        rows: Vec<Row>,
    },
    /// A document that has this text, without blanks between elements.
    Contains(String),
}

/// A reply.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    /// Outcomes, of which the reply has one. Several are faults of one request: S3 documents no
    /// order of precedence.
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) headers: Vec<(&'static str, Text)>,
    pub(crate) content: Content,
}

impl Expected {
    pub(crate) fn success(status: u16) -> Self {
        Self { outcomes: vec![(status, "")], ..Self::default() }
    }

    pub(crate) fn failure(outcomes: Vec<Outcome>) -> Self {
        Self { outcomes, ..Self::default() }
    }

    pub(crate) fn header(mut self, name: &'static str, text: impl Into<Text>) -> Self {
        self.headers.push((name, text.into()));
        self
    }

    pub(crate) fn with(mut self, content: Content) -> Self {
        self.content = content;
        self
    }

    pub(crate) fn document(self, fields: Vec<(&'static str, Text)>, rows: Vec<Row>) -> Self {
        self.with(Content::Document { fields, rows })
    }

    /// Returns true if the request is carried out.
    pub(crate) fn is_success(&self) -> bool {
        self.outcomes.iter().all(|(status, _)| *status < 300)
    }
}
