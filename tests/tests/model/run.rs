//! Runs of a sequence against real servers, beside the model.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hyper::HeaderMap;
use martlet_tests::{Reply, S3};

use crate::compare::{Form, compare, rows_of};
use crate::expected::{Content, Expected, Row};
use crate::names::Names;
use crate::operation::{
    Conditions, List, Listed, Numbered, Object, Operation, Read, Since, Step, Version, shown,
};
use crate::reference::{Flaw, Model};
use crate::request::{Context, Request};
use crate::xml::{Element, url_decoded};

/// Time after which a changed bucket is known to each proxy (docs/CONSISTENCY.md).
const CHANGE_KNOWN: Duration = Duration::from_millis(1100);
/// Bytes of a body that a refusal may overtake: more than a socket takes at once.
const OVERTAKEN_MIN: usize = 64 << 10;
/// Pages of a listing, at most.
const PAGES_MAX: usize = 200;

/// Clients of all addresses of a store.
pub(crate) struct Clients {
    addresses: Vec<SocketAddr>,
    connections: Vec<S3>,
    /// Client that changed a bucket last: others may not know of it yet.
    changed: Option<(usize, Instant)>,
}

impl Clients {
    pub(crate) fn new(addresses: &[SocketAddr]) -> Self {
        let connections = addresses.iter().map(|it| S3::new(*it)).collect();
        Self { addresses: addresses.to_vec(), connections, changed: None }
    }

    /// Sends a request of an operation. Operations take turns at the addresses.
    async fn send(
        &mut self,
        step: Step,
        operation: &Operation,
        request: &Request,
    ) -> Result<Reply, String> {
        let recent = self.changed.filter(|(_, since)| since.elapsed() < CHANGE_KNOWN);
        let at = recent.map_or(step % self.connections.len(), |(at, _)| at);
        let headers: Vec<(&str, &str)> =
            request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let (target, body) = (request.target(), request.body.clone());
        let body_len = body.len();
        let reply = self.connections[at].send_with(request.method, &target, &headers, body).await;
        // The client waits for a minute if it reuses a connection on which a reply overtook its
        // body, though the server has read the body and waits for the next request.
        if body_len > OVERTAKEN_MIN && reply.as_ref().is_ok_and(|it| it.status >= 300) {
            self.connections[at] = S3::new(self.addresses[at]);
        }
        if changes_bucket(operation) {
            self.changed = Some((at, Instant::now()));
        }
        reply.map_err(|lost| format!("no reply to {} {target}: {lost}", request.method))
    }
}

fn changes_bucket(operation: &Operation) -> bool {
    use Operation::{
        CreateBucket, CreateNamed, DeleteBucket, DeleteDocument, PutDocument, PutLockConfiguration,
        SetVersioning,
    };
    matches!(
        operation,
        CreateBucket { .. }
            | CreateNamed { .. }
            | DeleteBucket { .. }
            | DeleteDocument { .. }
            | PutDocument { .. }
            | PutLockConfiguration { .. }
            | SetVersioning { .. }
    )
}

/// Runs a sequence in buckets of its own, whose names begin with `prefix`. The error describes the
/// first reply that differs from the model's.
pub(crate) async fn run(
    clients: &mut Clients,
    prefix: String,
    sequence: &[Numbered],
    flaw: Flaw,
) -> Result<(), String> {
    let mut run = Run { clients, model: Model::new(flaw), names: Names::new(prefix) };
    for numbered in sequence {
        let Numbered { step, operation } = numbered;
        let done = match operation {
            Operation::List(list) if list.pages => run.pages(*step, list).await,
            _ => run.step(*step, operation).await,
        };
        done.map_err(|wrong| format!("{}: {wrong}", shown(std::slice::from_ref(numbered)).trim()))?;
    }
    Ok(())
}

struct Run<'a> {
    clients: &'a mut Clients,
    model: Model,
    names: Names,
}

impl Run<'_> {
    async fn step(&mut self, step: Step, operation: &Operation) -> Result<(), String> {
        if matches!(operation, Operation::CreateUpload { .. }) {
            // Uploads of a key are listed by the millisecond in which they began.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let modified = self.modified(step, operation).await?;
        let modified = modified.as_deref();
        let context = Context { state: &self.model.state, names: &self.names, modified };
        let request = context.request(operation);
        let mut expected = self.model.apply(step, operation);
        self.name_bucket(operation, &mut expected);
        let reply = self.clients.send(step, operation, &request).await?;
        let is_encoded = matches!(operation, Operation::List(it) if it.encoding.is_some());
        let form = Form { is_head: request.method == "HEAD", is_encoded };
        let compared = compare(&expected, &reply, &mut self.names, form);
        compared.map_err(|it| format!("{} {}: {it}", request.method, request.target()))
    }

    /// Puts the bucket's name into a document that the model expects.
    fn name_bucket(&self, operation: &Operation, expected: &mut Expected) {
        if let (Operation::GetDocument { bucket, .. }, Content::Contains(text)) =
            (operation, &mut expected.content)
        {
            *text = text.replace("BUCKET", &self.names.bucket(*bucket));
        }
    }

    /// `Last-Modified` of the object that a condition of the operation is about, if it needs one.
    async fn modified(&mut self, step: Step, op: &Operation) -> Result<Option<String>, String> {
        let (object, version, conditions) = match op {
            Operation::Read(read) => (&read.object, read.version, read.conditions),
            Operation::Copy(copy) => (&copy.source, copy.version, copy.source_conditions),
            _ => return Ok(None),
        };
        if ![conditions.modified, conditions.unmodified].contains(&Some(Since::Then)) {
            return Ok(None);
        }
        let head = head_of(object, version);
        let context = Context { state: &self.model.state, names: &self.names, modified: None };
        let request = context.request(&head);
        let reply = self.clients.send(step, &head, &request).await?;
        Ok(Some(reply.header("last-modified").to_owned()).filter(|it| !it.is_empty()))
    }

    /// Reads a listing page by page, and compares the rows of all pages with the model's.
    async fn pages(&mut self, step: Step, list: &List) -> Result<(), String> {
        let operation = Operation::List(list.clone());
        let Ok(rows) = self.model.rows(list) else { return self.step(step, &operation).await };
        if list.encoding == Some("base64") {
            return self.step(step, &operation).await;
        }
        let limit: usize = list.limit.and_then(|it| it.parse().ok()).unwrap_or(1000);
        let mut request = {
            let names = &self.names;
            Context { state: &self.model.state, names, modified: None }.request(&operation)
        };
        let mut found: Vec<Element> = Vec::new();
        for _ in 0..PAGES_MAX {
            let reply = self.clients.send(step, &operation, &request).await?;
            let text = reply.text();
            let page = Element::parse(&text).filter(|_| reply.status == 200);
            let page = page.ok_or_else(|| format!("a page is {}: {text}", reply.status))?;
            let on_page = rows_of(&page);
            if on_page.len() > limit {
                return Err(format!("{} rows on a page\n{text}", on_page.len()));
            }
            found.extend(on_page.into_iter().cloned());
            if page.child("IsTruncated") != Some("true") {
                return self.check_pages(&rows, &found, list);
            }
            go_on(&mut request, list, &page).ok_or_else(|| format!("no next page in {text}"))?;
        }
        Err(format!("a listing has over {PAGES_MAX} pages"))
    }

    fn check_pages(&mut self, rows: &[Row], found: &[Element], list: &List) -> Result<(), String> {
        let body = found.iter().map(serialized).collect::<String>();
        let body = format!("<Pages>{body}</Pages>");
        let reply = Reply { status: 200, headers: HeaderMap::new(), body: body.into() };
        let expected = Expected::success(200).document(Vec::new(), rows.to_vec());
        let form = Form { is_head: false, is_encoded: list.encoding.is_some() };
        compare(&expected, &reply, &mut self.names, form).map_err(|it| format!("all pages: {it}"))
    }
}

fn head_of(object: &Object, version: Version) -> Operation {
    let conditions = Conditions::default();
    let (object, head, range, part) = (object.clone(), true, None, None);
    Operation::Read(Read { object, version, head, range, part, conditions })
}

/// Sets the query of the next page. ListObjects names no marker without a delimiter: the last key
/// is the marker.
fn go_on(request: &mut Request, list: &List, page: &Element) -> Option<()> {
    let decoded = |text: &str| match list.encoding {
        Some(_) => url_decoded(text),
        None => Some(text.to_owned()),
    };
    match list.listed {
        Listed::Objects => {
            let last = || page.children.iter().rfind(|it| it.name == "Contents")?.child("Key");
            let marker = page.child("NextMarker").or_else(last)?;
            request.set("marker", &decoded(marker)?);
        }
        Listed::ObjectsV2 => {
            request.set("continuation-token", page.child("NextContinuationToken")?);
        }
        Listed::Versions => {
            request.set("key-marker", &decoded(page.child("NextKeyMarker")?)?);
            request.set("version-id-marker", page.child("NextVersionIdMarker").unwrap_or_default());
        }
        Listed::Uploads => {
            request.set("key-marker", &decoded(page.child("NextKeyMarker")?)?);
            request.set("upload-id-marker", page.child("NextUploadIdMarker").unwrap_or_default());
        }
    }
    Some(())
}

fn serialized(element: &Element) -> String {
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let inner: String = element.children.iter().map(serialized).collect();
    let text = if element.children.is_empty() { escaped(&element.text) } else { inner };
    format!("<{0}>{text}</{0}>", element.name)
}
