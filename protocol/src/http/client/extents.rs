//! Writes and reads of extents, from request to reply, with their errors.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::connection::gather;
use super::download::Download;
use super::exchange::{AttemptError, ReplyHead, path};
use super::remote_node::RemoteNode;
use super::upload::{ExtentUpload, RequestBody, UploadProgress};
use crate::backend::{ByteStream, CallKind, NewExtent};
use crate::error::{Error, Result};
use crate::extent::ExtentRef;
use crate::http::call_codec::decode;
use crate::http::{calls, fault, sign};
use crate::id::{DeviceId, ExtentId};

impl RemoteNode {
    pub(super) async fn write_extent(
        &self,
        device: DeviceId,
        extent: &NewExtent,
        body: ByteStream,
    ) -> Result<ExtentRef> {
        let (upload, progress) = ExtentUpload::new(body, extent);
        let uri = path(&format!("/v1/d/{}/extents/{}", device.0, extent.id));
        let mut request = request(Method::PUT, uri, RequestBody::Stream(upload));
        let headers = request.headers_mut();
        headers.insert(calls::EXTENT, description(extent)?);
        if extent.hashes.is_some() {
            if extent.length.is_none() {
                return Err(Error::internal("an extent with hashes has no length"));
            }
            headers.insert(calls::HASHES, HeaderValue::from_static("1"));
        }
        headers.insert(sign::DIGEST, sign::STREAMED);
        self.seal(&mut request);

        let reply = self.sent_whole(request, &progress).await?;
        let is_ended = progress.is_ended();
        if reply.response.status() != StatusCode::OK {
            return Err(self.refused(reply, is_ended).await);
        }
        if !is_ended {
            return Err(Error::internal("the node accepted the extent before receiving it"));
        }
        let reference: ExtentRef = self.gathered(reply).await?;
        if reference.id != extent.id {
            return Err(Error::internal("the node stored another extent"));
        }
        Ok(reference)
    }

    /// Sends a request with a stream; fails once the node stops accepting bytes.
    async fn sent_whole(
        &self,
        request: Request<RequestBody>,
        progress: &UploadProgress,
    ) -> Result<ReplyHead> {
        let pass = self.breaker.pass(&self.address)?;
        let replied = tokio::select! {
            replied = self.exchange(request) => replied,
            () = progress.stalled(self.options.idle, self.options.finish) => {
                self.unanswered(pass);
                let message = format!("the node at {} stopped receiving an extent", self.address);
                return Err(Error::unavailable(message));
            }
        };
        match replied {
            Ok(reply) => {
                pass.answered();
                Ok(reply)
            }
            Err(AttemptError::Unreached(error)) => {
                self.unanswered(pass);
                Err(error)
            }
            Err(AttemptError::Broken(error, _)) => Err(progress.failure().unwrap_or(error)),
        }
    }

    pub(super) async fn read_extent(
        self: &Arc<Self>,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<Download> {
        let Range { start, end } = range.clone();
        if end <= start {
            return Err(Error::invalid(format!("extent {id} has no bytes {start}..{end}")));
        }
        let uri = path(&format!("/v1/d/{}/extents/{id}?from={start}&to={end}", device.0));
        let make_request = || {
            let mut request = request(Method::GET, uri.clone(), RequestBody::Whole(Bytes::new()));
            self.seal(&mut request);
            request
        };
        let pass = self.breaker.pass(&self.address)?;
        let reply = match timeout(self.options.idle, self.exchange_again(make_request)).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(missed)) => {
                if matches!(missed, AttemptError::Unreached(_)) {
                    self.unanswered(pass);
                }
                return Err(missed.into_error());
            }
            Err(_) => {
                self.unanswered(pass);
                return Err(self.too_long());
            }
        };
        pass.answered();
        if reply.response.status() != StatusCode::OK {
            return Err(self.refused(reply, true).await);
        }
        let ReplyHead { response, connection } = reply;
        Download::new(self.clone(), connection, response.into_body(), &range)
    }

    async fn gathered<T: DeserializeOwned>(&self, reply: ReplyHead) -> Result<T> {
        let ReplyHead { response, mut connection } = reply;
        let body = gather(response.into_body(), CallKind::StatExtent.reply_bytes_max());
        let body = timeout(self.options.idle, connection.driving(body))
            .await
            .map_err(|_| self.too_long())??;
        self.pool.put(connection);
        decode(&body)
    }

    /// Reads the error of a failed reply. The connection returns to the pool only if `is_reusable`.
    async fn refused(&self, reply: ReplyHead, is_reusable: bool) -> Error {
        let ReplyHead { response, mut connection } = reply;
        let (head, body) = response.into_parts();
        let sentence = gather(body, fault::SENTENCE_BYTES_MAX);
        match timeout(self.options.idle, connection.driving(sentence)).await {
            Ok(Ok(sentence)) => {
                if is_reusable {
                    self.pool.put(connection);
                }
                fault::of_reply(head.status, &head.headers, &sentence)
            }
            Ok(Err(error)) => error,
            Err(_) => self.too_long(),
        }
    }
}

fn request(method: Method, uri: Uri, body: RequestBody) -> Request<RequestBody> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    request
}

fn description(extent: &NewExtent) -> Result<HeaderValue> {
    let bytes = postcard::to_stdvec(extent).map_err(|error| {
        Error::internal("an extent's description can't be encoded").with_source(error)
    })?;
    Ok(HeaderValue::try_from(hex::encode(bytes)).expect("hexadecimal digits are a header"))
}
