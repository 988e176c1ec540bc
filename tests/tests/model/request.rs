//! Requests of operations.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use martlet_tests::s3::encoded;

use crate::checksums::{HEADERS, checksum, content_md5};
use crate::names::Names;
use crate::operation::{
    Bucket, Conditions, Copy, CopyPart, Delete, DeleteMany, Description, Digested, List, Listed,
    Lock, Object, Operation, Put, Read, Shape, Since, Tag, Upload, Version, etag,
};
use crate::reference::state::State;
use crate::reference::{DOCUMENTS, LOCK_CONFIGURATIONS, WRONG};

const LONG_AGO: &str = "Sat, 29 Oct 1994 19:43:31 GMT";

/// A request, before it is signed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    path: String,
    query: BTreeMap<&'static str, String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

impl Request {
    /// Path and query, as they are signed.
    pub(crate) fn target(&self) -> String {
        let query = self.query.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
        let query: Vec<String> = query.collect();
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{}{mark}{}", self.path, query.join("&"))
    }

    fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.insert(name, value.into());
        self
    }

    pub(crate) fn set(&mut self, name: &'static str, value: &str) {
        self.query.insert(name, value.to_owned());
    }

    fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }
}

/// Everything that the text of a request depends on.
pub(crate) struct Context<'a> {
    pub(crate) state: &'a State,
    pub(crate) names: &'a Names,
    /// `Last-Modified` of the object that a condition is about.
    pub(crate) modified: Option<&'a str>,
}

impl Context<'_> {
    fn bucket(&self, method: &'static str, bucket: Bucket) -> Request {
        let path = format!("/{}", self.names.bucket(bucket));
        Request { method, path, ..Request::default() }
    }

    fn object(&self, method: &'static str, object: &Object) -> Request {
        let mut request = self.bucket(method, object.bucket);
        let _ = write!(request.path, "/{}", path_of(&object.key));
        request
    }

    fn version(&self, method: &'static str, object: &Object, version: Version) -> Request {
        let request = self.object(method, object);
        match self.names.version(version) {
            Some(id) => request.query("versionId", id),
            None => request,
        }
    }

    fn upload(&self, method: &'static str, upload: &Upload) -> Request {
        self.object(method, &upload.object).query("uploadId", self.names.upload(upload.begun))
    }

    /// The request of an operation.
    pub(crate) fn request(&self, operation: &Operation) -> Request {
        match operation {
            Operation::CreateBucket { bucket, lock } => {
                let request = self.bucket("PUT", *bucket);
                if *lock {
                    request.header("x-amz-bucket-object-lock-enabled", "true")
                } else {
                    request
                }
            }
            Operation::CreateNamed { name, .. } => {
                Request { method: "PUT", path: format!("/{name}"), ..Request::default() }
            }
            Operation::HeadBucket { bucket } => self.bucket("HEAD", *bucket),
            Operation::DeleteBucket { bucket } => self.bucket("DELETE", *bucket),
            Operation::Put(put) => self.put(put),
            Operation::Read(read) => self.read(read),
            Operation::Delete(delete) => self.delete(delete),
            Operation::DeleteMany(delete) => self.delete_many(delete),
            Operation::Copy(copy) => self.copy(copy),
            Operation::List(list) => self.list(list),
            Operation::SetVersioning { bucket, status } => {
                let status = if status.is_empty() {
                    String::new()
                } else {
                    format!("<Status>{status}</Status>")
                };
                let body = format!("<VersioningConfiguration>{status}</VersioningConfiguration>");
                self.bucket("PUT", *bucket).query("versioning", "").body(body)
            }
            Operation::GetVersioning { bucket } => {
                self.bucket("GET", *bucket).query("versioning", "")
            }
            Operation::PutLockConfiguration { bucket, variant } => {
                let text = LOCK_CONFIGURATIONS[*variant].text;
                self.bucket("PUT", *bucket).query("object-lock", "").body(text)
            }
            Operation::GetLockConfiguration { bucket } => {
                self.bucket("GET", *bucket).query("object-lock", "")
            }
            Operation::PutDocument { bucket, kind, variant } => {
                let kind = &DOCUMENTS[*kind];
                let text = kind.variants[*variant].text;
                let text = text.replace("BUCKET", &self.names.bucket(*bucket));
                self.bucket("PUT", *bucket).query(kind.query, "").body(text)
            }
            Operation::GetDocument { bucket, kind } => {
                self.bucket("GET", *bucket).query(DOCUMENTS[*kind].query, "")
            }
            Operation::DeleteDocument { bucket, kind } => {
                self.bucket("DELETE", *bucket).query(DOCUMENTS[*kind].query, "")
            }
            other => self.of_upload(other),
        }
    }

    fn of_upload(&self, operation: &Operation) -> Request {
        match operation {
            Operation::CreateUpload { object, description } => {
                described(self.object("POST", object).query("uploads", ""), description)
            }
            Operation::UploadPart { upload, number, body, md5 } => {
                let bytes = body.bytes();
                let request = self.upload("PUT", upload).query("partNumber", number.to_string());
                with_md5(request, *md5, &bytes).body(bytes)
            }
            Operation::CopyPart(copy) => self.copy_part(copy),
            Operation::Complete { upload, parts, conditions } => {
                let mut document = "<CompleteMultipartUpload>".to_owned();
                for (number, tag) in parts {
                    let tag = self.part_tag(upload, *number, *tag);
                    let part = format!("<PartNumber>{number}</PartNumber><ETag>{tag}</ETag>");
                    let _ = write!(document, "<Part>{part}</Part>");
                }
                document.push_str("</CompleteMultipartUpload>");
                let request = self.upload("POST", upload).body(document);
                self.conditional(request, "", *conditions, &upload.object, Version::Current)
            }
            Operation::Abort { upload } => self.upload("DELETE", upload),
            Operation::ListParts { upload, marker, limit } => {
                let mut request = self.upload("GET", upload);
                if let Some(marker) = marker {
                    request = request.query("part-number-marker", marker.to_string());
                }
                match limit {
                    Some(limit) => request.query("max-parts", *limit),
                    None => request,
                }
            }
            other => self.of_version(other),
        }
    }

    fn of_version(&self, operation: &Operation) -> Request {
        match operation {
            Operation::PutTags { object, version, tags } => {
                let tag = |(key, value): &(String, String)| {
                    let (key, value) = (escaped(key), escaped(value));
                    format!("<Tag><Key>{key}</Key><Value>{value}</Value></Tag>")
                };
                let tags: String = tags.iter().map(tag).collect();
                let request = self.version("PUT", object, *version).query("tagging", "");
                request.body(format!("<Tagging><TagSet>{tags}</TagSet></Tagging>"))
            }
            Operation::GetTags { object, version } => {
                self.version("GET", object, *version).query("tagging", "")
            }
            Operation::DeleteTags { object, version } => {
                self.version("DELETE", object, *version).query("tagging", "")
            }
            Operation::PutRetention { object, version, retention, bypass } => {
                let text = retention.map_or_else(String::new, |it| {
                    let mode = if it.compliance { "COMPLIANCE" } else { "GOVERNANCE" };
                    let until = it.until.text();
                    format!("<Mode>{mode}</Mode><RetainUntilDate>{until}</RetainUntilDate>")
                });
                let request = self.version("PUT", object, *version).query("retention", "");
                bypassing(request, *bypass).body(format!("<Retention>{text}</Retention>"))
            }
            Operation::GetRetention { object, version } => {
                self.version("GET", object, *version).query("retention", "")
            }
            Operation::PutHold { object, version, on } => {
                let status = if *on { "ON" } else { "OFF" };
                let request = self.version("PUT", object, *version).query("legal-hold", "");
                request.body(format!("<LegalHold><Status>{status}</Status></LegalHold>"))
            }
            Operation::GetHold { object, version } => {
                self.version("GET", object, *version).query("legal-hold", "")
            }
            other => unreachable!("{other:?} has a request of its own"),
        }
    }

    fn put(&self, put: &Put) -> Request {
        let bytes = put.body.bytes();
        let request = described(self.object("PUT", &put.object), &put.description);
        let request = self.conditional(request, "", put.conditions, &put.object, Version::Current);
        let request = with_md5(request, put.md5, &bytes);
        let Some(announced) = put.checksum else { return request.body(bytes) };
        let name = HEADERS[announced.algorithm];
        let value = match announced.value {
            Digested::Right => checksum(announced.algorithm, &bytes),
            Digested::Wrong => checksum(announced.algorithm, b"other bytes"),
            Digested::Malformed => "!!!!".to_owned(),
        };
        if !announced.in_trailer {
            return request.header(name, value).body(bytes);
        }
        let mut body = Vec::new();
        if !bytes.is_empty() {
            body.extend(format!("{:x}\r\n", bytes.len()).into_bytes());
            body.extend(&bytes);
            body.extend(b"\r\n");
        }
        body.extend(format!("0\r\n{name}:{value}\r\n\r\n").into_bytes());
        request
            .header("content-encoding", "aws-chunked")
            .header("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
            .header("x-amz-decoded-content-length", bytes.len().to_string())
            .header("x-amz-trailer", name)
            .body(body)
    }

    fn read(&self, read: &Read) -> Request {
        let method = if read.head { "HEAD" } else { "GET" };
        let mut request = self.version(method, &read.object, read.version);
        request = request.header("x-amz-checksum-mode", "ENABLED");
        if let Some(range) = read.range {
            request = request.header("range", range);
        }
        if let Some(part) = read.part {
            request = request.query("partNumber", part.to_string());
        }
        self.conditional(request, "", read.conditions, &read.object, read.version)
    }

    fn delete(&self, delete: &Delete) -> Request {
        let request = self.version("DELETE", &delete.object, delete.version);
        let conditions = Conditions { matches: delete.matches, ..Conditions::default() };
        let request = bypassing(request, delete.bypass);
        self.conditional(request, "", conditions, &delete.object, delete.version)
    }

    fn delete_many(&self, delete: &DeleteMany) -> Request {
        let mut document = format!("<Delete><Quiet>{}</Quiet>", delete.quiet);
        for (key, version) in &delete.objects {
            let version = self.names.version(*version);
            let version = version.map(|id| format!("<VersionId>{id}</VersionId>"));
            let (key, version) = (escaped(key), version.unwrap_or_default());
            let _ = write!(document, "<Object><Key>{key}</Key>{version}</Object>");
        }
        match delete.shape {
            Shape::TooMany => {
                let more = (0..1001).map(|at| format!("<Object><Key>none{at}</Key></Object>"));
                document.extend(more);
                document.push_str("</Delete>");
            }
            Shape::Malformed => document.push_str("<Object></Delete>"),
            Shape::Good | Shape::Undigested => document.push_str("</Delete>"),
        }
        let request =
            bypassing(self.bucket("POST", delete.bucket).query("delete", ""), delete.bypass);
        if delete.shape == Shape::Undigested {
            return request.body(document);
        }
        request.header("content-md5", content_md5(document.as_bytes())).body(document)
    }

    fn copy(&self, copy: &Copy) -> Request {
        let mut request =
            self.sourced(self.object("PUT", &copy.object), &copy.source, copy.version);
        let conditions = copy.source_conditions;
        let prefix = "x-amz-copy-source-";
        request = self.conditional(request, prefix, conditions, &copy.source, copy.version);
        let current = Version::Current;
        request = self.conditional(request, "", copy.conditions, &copy.object, current);
        if let Some(description) = &copy.replace {
            let only = Description { tags: None, ..description.clone() };
            request = described(request, &only).header("x-amz-metadata-directive", "REPLACE");
        }
        if let Some(tags) = &copy.tags {
            request = request
                .header("x-amz-tagging-directive", "REPLACE")
                .header("x-amz-tagging", tag_header(tags));
        }
        request
    }

    fn copy_part(&self, copy: &CopyPart) -> Request {
        let request = self.upload("PUT", &copy.upload);
        let request = request.query("partNumber", copy.number.to_string());
        let request = self.sourced(request, &copy.source, copy.version);
        match copy.range {
            Some(range) => request.header("x-amz-copy-source-range", range),
            None => request,
        }
    }

    fn sourced(&self, request: Request, source: &Object, version: Version) -> Request {
        let mut text = format!("/{}/{}", self.names.bucket(source.bucket), path_of(&source.key));
        if let Some(id) = self.names.version(version) {
            let _ = write!(text, "?versionId={id}");
        }
        request.header("x-amz-copy-source", text)
    }

    fn list(&self, list: &List) -> Request {
        let mut request = self.bucket("GET", list.bucket);
        let (marker, limit) = match list.listed {
            Listed::Objects => ("marker", "max-keys"),
            Listed::ObjectsV2 => ("start-after", "max-keys"),
            Listed::Versions => ("key-marker", "max-keys"),
            Listed::Uploads => ("key-marker", "max-uploads"),
        };
        match list.listed {
            Listed::Objects => {}
            Listed::ObjectsV2 => request.set("list-type", "2"),
            Listed::Versions => request.set("versions", ""),
            Listed::Uploads => request.set("uploads", ""),
        }
        let optional = [
            ("prefix", Some(list.prefix.as_str()).filter(|it| !it.is_empty())),
            ("delimiter", Some(list.delimiter.as_str()).filter(|it| !it.is_empty())),
            (marker, list.marker.as_deref()),
            (limit, list.limit),
            ("encoding-type", list.encoding),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                request.set(name, value);
            }
        }
        request
    }

    /// ETag of a part in a list of parts.
    fn part_tag(&self, upload: &Upload, number: i32, tag: Tag) -> String {
        let bucket = self.state.bucket(upload.object.bucket).ok();
        let known = bucket.and_then(|it| it.uploads.get(&upload.begun?));
        let stored = known.and_then(|it| it.parts.get(&number)).filter(|_| tag == Tag::Right);
        stored.map_or_else(|| WRONG.to_owned(), |bytes| etag(bytes))
    }

    /// Adds conditions on an object.
    fn conditional(
        &self,
        mut request: Request,
        prefix: &str,
        conditions: Conditions,
        object: &Object,
        version: Version,
    ) -> Request {
        let right = self.state.data(object, version).map(|data| data.etag.clone());
        let right = right.unwrap_or_else(|| WRONG.to_owned());
        let tag = |tag: Tag| match tag {
            Tag::Any => "*".to_owned(),
            Tag::Right => format!("\"{right}\""),
            Tag::Wrong => format!("\"{WRONG}\""),
            Tag::List => format!("\"{WRONG}\", \"{right}\""),
            Tag::Empty => String::new(),
        };
        let since = |since: Since| match since {
            Since::LongAgo => LONG_AGO.to_owned(),
            Since::Then => self.modified.unwrap_or(LONG_AGO).to_owned(),
            Since::Malformed => "yesterday".to_owned(),
        };
        let headers = [
            ("if-match", conditions.matches.map(tag)),
            ("if-none-match", conditions.none_match.map(tag)),
            ("if-modified-since", conditions.modified.map(since)),
            ("if-unmodified-since", conditions.unmodified.map(since)),
        ];
        for (name, value) in headers {
            if let Some(value) = value {
                request = request.header(&format!("{prefix}{name}"), value);
            }
        }
        request
    }
}

fn described(mut request: Request, description: &Description) -> Request {
    for (name, value) in &description.metadata {
        request = request.header(&format!("x-amz-meta-{name}"), value.as_str());
    }
    if let Some(text) = description.content_type {
        request = request.header("content-type", text);
    }
    if let Some(tags) = &description.tags {
        request = request.header("x-amz-tagging", tag_header(tags));
    }
    let Some(Lock { retention, hold }) = description.lock else { return request };
    if let Some(hold) = hold {
        request = request.header("x-amz-object-lock-legal-hold", if hold { "ON" } else { "OFF" });
    }
    let Some(retention) = retention else { return request };
    let mode = if retention.compliance { "COMPLIANCE" } else { "GOVERNANCE" };
    request
        .header("x-amz-object-lock-mode", mode)
        .header("x-amz-object-lock-retain-until-date", retention.until.text())
}

fn with_md5(request: Request, md5: Option<Digested>, bytes: &[u8]) -> Request {
    match md5 {
        None => request,
        Some(Digested::Right) => request.header("content-md5", content_md5(bytes)),
        Some(Digested::Wrong) => request.header("content-md5", content_md5(b"other bytes")),
        Some(Digested::Malformed) => request.header("content-md5", "nonsense"),
    }
}

fn bypassing(request: Request, bypass: bool) -> Request {
    if bypass { request.header("x-amz-bypass-governance-retention", "true") } else { request }
}

fn tag_header(tags: &[(String, String)]) -> String {
    let pair = |(key, value): &(String, String)| format!("{}={}", encoded(key), encoded(value));
    tags.iter().map(pair).collect::<Vec<_>>().join("&")
}

/// A key in a path: slashes stay, and so do `.` and `..`.
fn path_of(key: &str) -> String {
    key.split('/').map(encoded).collect::<Vec<_>>().join("/")
}

/// A text in a document.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\r' | '\n' | '\t' => {
                let _ = write!(out, "&#{};", u32::from(char));
            }
            other => out.push(other),
        }
    }
    out
}
