//! `PostObject`: an upload by HTML form, converted to the PUT that it stands for.
//!
//! ```text
//! form ─▶ fields before the file ─▶ signature of the policy ─▶ policy ─▶ PUT /bucket/key, whose
//!         body is the file, as it comes in, and whose headers are the fields
//! ```
//!
//! * `fields`: the fields, and the headers that they stand for.
//! * `policy`: the permissions that a form's signer gives.
//! * `file`: the file as a stream, within the allowed length.
//!
//! No byte of the file is passed on before the fields are checked, and the file is never held
//! whole.

mod fields;
mod file;
mod policy;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::Method;
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, TRANSFER_ENCODING,
};
use http::request::Parts;
use http_body_util::BodyExt;
use martlet_protocol::limits::PUT_BYTES_MAX;
use multer::Multipart;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use self::fields::{Fields, PLAIN, too_long};
use self::file::{ByteAllowance, FileBody, PacedBody, found};
use self::policy::FormPolicy;
use super::admission::{Admission, RequestName};
use super::checksum::content_md5;
use super::pipeline_state::{Arrival, PipelineError, RequestPipeline, number};
use crate::access::Identity;
use crate::auth::{Authenticator, Caller, Mechanism};
use crate::body::RequestBody;
use crate::connection::Connection;
use crate::decode::{BodyError, BodyFacts, BodyPlan, DecodedBody, Framing, PollFlag};
use crate::form_reply::{FormReply, UploadedObject};
use crate::limits::RequestKind;
use crate::messages;
use crate::operation::{OPERATION_NAME, Operation, PathKind, find};
use crate::refusal::Refusal;
use crate::request::{OperationRequest, PreparedRequest, RequestContext};
use crate::target::{Query, RequestTarget};

/// Maximum bytes of a form before its file, and again after it, including the lines between parts.
const AROUND_BYTES_MAX: u64 = 64 * 1024;

/// A request with a form.
pub(super) struct ReceivedForm<B> {
    /// Its bucket.
    pub(super) target: RequestTarget,
    pub(super) parts: Parts,
    pub(super) body: B,
    pub(super) arrival: Arrival,
}

/// A form, parsed up to its file.
struct PostForm {
    fields: Fields,
    file: FileBody,
}

/// Returns true if a request is a form: a POST with the Content-Type of a form.
pub(super) fn is_form(method: &Method, headers: &HeaderMap) -> bool {
    const FORM: &[u8] = b"multipart/form-data";
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let is_form =
        content_type.get(..FORM.len()).is_some_and(|start| start.eq_ignore_ascii_case(FORM));
    method == Method::POST && is_form
}

/// Refusal of a POST to a bucket that is no form.
pub(super) fn not_a_form() -> Refusal {
    let condition = "Bucket POST must be of the enclosure-type multipart/form-data";
    messages::PRECONDITION_FAILED.refusal().with_detail("Condition", condition)
}

impl RequestPipeline {
    /// Converts a form to the PUT that it stands for.
    pub(super) async fn prepare_form<B>(
        &self,
        received: ReceivedForm<B>,
        admission: &mut Admission,
    ) -> Result<PreparedRequest, PipelineError>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let ReceivedForm { target, mut parts, body, arrival } = received;
        let bucket = target.bucket().unwrap_or_default();
        let connection = Connection::of(&parts.extensions);
        // The fields name the sender. Until they are read the request counts as anonymous.
        let name = RequestName { method: &parts.method, uri: &parts.uri, headers: &parts.headers };
        admission.admit(&Identity::Anonymous, RequestKind::Upload, name).await?;
        let mut form = self.read_form(&parts.headers, body, arrival.polled).await?;
        let caller = match Authenticator::form_key(|name| form.fields.get(name)) {
            Some(access_key) => {
                let token = form.fields.get("x-amz-security-token");
                self.authenticator.caller_of(access_key, token, connection.peer).await?
            }
            None => Caller::default(),
        };
        let field = |name: &str| form.fields.get(name);
        let identity = self.authenticator.authenticate_form(field, &caller)?;
        if identity == Identity::Anonymous && !self.config.allow_anonymous {
            return Err(messages::ACCESS_DENIED.refusal().into());
        }
        let name = RequestName { method: &parts.method, uri: &parts.uri, headers: &parts.headers };
        admission.admit(&identity, RequestKind::Upload, name).await?;
        let key = key_of(&form.fields)?;
        form.file.allow(self.form_lengths(&form.fields, bucket)?);
        let path = format!("/{bucket}/{}", utf8_percent_encode(key, NON_ALPHANUMERIC));
        let target = RequestTarget::parse(&path, None)?;
        let reply = {
            let path = &*target.path();
            let object = UploadedObject { bucket, key, path };
            FormReply::new(field, &parts.headers, object)
        };
        become_put(&mut parts.headers, &form.fields)?;
        super::features::check(&parts.headers)?;
        super::features::check_operation(Operation::PostObject, &parts.headers)?;
        let facts = BodyFacts::new(None, content_md5(&parts.headers)?, Vec::new());
        let context = RequestContext {
            operation: Operation::PostObject,
            identity,
            // A form has a signature of its own kind.
            mechanism: Mechanism::None,
            facts: Arc::new(facts),
            connection,
            observation: arrival.observation,
        };
        let head = OperationRequest::new(context, target, String::new(), parts.headers);
        Ok(PreparedRequest { head, body: RequestBody::new(form.file), form: Some(reply) })
    }

    /// Bucket of a form. None if the form is the body of another operation: an object may be a
    /// form.
    pub(super) fn form_target(&self, parts: &Parts) -> Result<Option<RequestTarget>, Refusal> {
        let target = self.target(&parts.uri, &parts.headers)?;
        if target.bucket().is_none() || target.key().is_some() {
            return Ok(None);
        }
        let mut query = Query::parse(parts.uri.query().unwrap_or_default())?;
        query.retain(|name| name != OPERATION_NAME);
        let operation = find("POST", PathKind::Bucket, false, &query)?;
        if operation != Operation::PostObject {
            return Ok(None);
        }
        if parts.headers.contains_key(AUTHORIZATION) {
            return Err(messages::FORM_SIGNED.named("Authorization"));
        }
        Ok(Some(target))
    }

    /// Reads a form up to its file.
    async fn read_form<B>(
        &self,
        headers: &HeaderMap,
        body: B,
        polled: PollFlag,
    ) -> Result<PostForm, Refusal>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let boundary = multer::parse_boundary(content_type.unwrap_or_default())
            .map_err(|_| Refusal::from(BodyError::MalformedForm("no boundary")))?;
        let length = number(headers, &CONTENT_LENGTH)?;
        let facts = Arc::new(BodyFacts::new(length, None, Vec::new()));
        let patience = self.config.patience();
        let plan = BodyPlan { framing: Framing::Plain, facts, patience, polled };
        let allowance = ByteAllowance::of(AROUND_BYTES_MAX);
        let sips =
            PacedBody::new(DecodedBody::new(body, plan).into_data_stream(), allowance.clone());
        let mut form = Multipart::new(sips, boundary);
        let mut fields = Fields::default();
        loop {
            let field = form.next_field().await.map_err(|error| refusal(found(&error)))?;
            let Some(mut field) = field else { return Err(no_file()) };
            let name = field.name().unwrap_or_default().to_owned();
            if name.eq_ignore_ascii_case("file") {
                fields.expand(field.file_name().unwrap_or_default())?;
                let file = FileBody::new(form, field, allowance, AROUND_BYTES_MAX);
                return Ok(PostForm { fields, file });
            }
            let mut value = BytesMut::new();
            while let Some(piece) = field.chunk().await.map_err(|error| refusal(found(&error)))? {
                value.extend_from_slice(&piece);
            }
            fields.push(&name, &value)?;
        }
    }

    /// Bytes that the form's signer allows for the file. Without a policy, up to the limit of a
    /// PUT.
    fn form_lengths(
        &self,
        fields: &Fields,
        bucket: &str,
    ) -> Result<std::ops::RangeInclusive<u64>, Refusal> {
        let Some(policy) = fields.get("policy") else { return Ok(0..=PUT_BYTES_MAX) };
        let allowed = FormPolicy::parse(policy)?.check(fields, bucket, self.authenticator.now())?;
        Ok(*allowed.start()..=(*allowed.end()).min(PUT_BYTES_MAX))
    }
}

/// Refusal for an error before the form's file.
fn refusal(error: BodyError) -> Refusal {
    if error == BodyError::FormFields { too_long() } else { error.into() }
}

fn no_file() -> Refusal {
    messages::FORM_FILE.argument("file", 0)
}

fn key_of(fields: &Fields) -> Result<&str, Refusal> {
    let key = fields.get("key").ok_or_else(|| messages::FORM_FIELD.named("key"))?;
    if key.is_empty() {
        return Err(messages::FORM_KEY.argument("key", key));
    }
    Ok(key)
}

/// Removes headers that describe the form's body, and headers about the object that no policy of
/// the form allows. Adds the headers in the form's fields.
fn become_put(headers: &mut HeaderMap, fields: &Fields) -> Result<(), Refusal> {
    let is_extension = |name: &str| name.starts_with("x-amz-") || name.starts_with("x-martlet-");
    let of_object = |name: &HeaderName| is_extension(name.as_str()) || PLAIN.contains(name);
    let ours: Vec<_> = headers.keys().filter(|name| of_object(name)).cloned().collect();
    for name in ours.iter().chain(&[CONTENT_LENGTH, TRANSFER_ENCODING]) {
        headers.remove(name);
    }
    fields.write_headers(headers)
}

#[cfg(test)]
mod tests;
