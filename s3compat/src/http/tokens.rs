//! Requests to the security token service, and for users' own keys: read whole, and answered without
//! an operation.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Request, Response};

use super::pipeline_state::{Arrival, RequestPipeline, number};
use crate::body::ResponseBody;
use crate::decode::{BodyFacts, BodyPlan, DecodedBody, Framing, collect};
use crate::iam::{self, IamHead};
use crate::refusal::Refusal;
use crate::sts;
use crate::target::RequestTarget;

impl RequestPipeline {
    /// Returns true if a request is for the token service: a form that is posted to no bucket.
    pub(super) fn is_for_tokens<B>(&self, request: &Request<B>) -> bool {
        let (uri, headers) = (request.uri(), request.headers());
        self.authenticator.sessions().is_some()
            && sts::is_for(request.method(), uri, headers)
            && self.target(uri, headers).is_ok_and(|target| target.bucket().is_none())
    }

    /// Answers a request for the token service.
    pub(super) async fn answer_for_tokens<B>(
        &self,
        request: Request<B>,
        arrival: Arrival,
    ) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let (parts, body) = request.into_parts();
        let read = async {
            let target: RequestTarget = self.target(&parts.uri, &parts.headers)?;
            let length = number(&parts.headers, &CONTENT_LENGTH)?;
            let facts = Arc::new(BodyFacts::new(length, None, Vec::new()));
            let patience = self.config.patience();
            let polled = arrival.polled;
            let plan = BodyPlan { framing: Framing::Plain, facts, patience, polled };
            // The fields of the form name the sender.
            let mut share = self.documents.begin(None);
            let body = DecodedBody::new(body, plan);
            let body = collect(body, sts::FORM_BYTES_MAX, &mut share).await?;
            Ok::<_, Refusal>((target, body, share))
        };
        let id = arrival.id.to_str().unwrap_or_default();
        let read = read.await;
        let read = read.as_ref().map(|(target, body, _)| (target, &body[..]));
        if let Ok((target, body)) = read
            && iam::is_for(body)
        {
            let request = IamHead { parts: &parts, target, body, id };
            return iam::answer(&self.authenticator, request, self.changes.get()).await;
        }
        sts::answer(&self.authenticator, &parts, read, id).await
    }
}
