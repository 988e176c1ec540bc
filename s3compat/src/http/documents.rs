//! Documents: bodies that are read whole before their operation begins.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;

use super::pipeline::RequestPipeline;
use crate::auth::Identity;
use crate::decode::{BodyError, DecodedBody, collect};

impl RequestPipeline {
    /// Reads a whole document. Its memory is released when the request ends.
    pub(super) async fn collect<B>(
        &self,
        body: DecodedBody<B>,
        bytes_max: u64,
        parts: &mut Parts,
        identity: &Identity,
    ) -> Result<Bytes, BodyError>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let mut share = self.documents.begin(identity.who().map(|who| &who.meters));
        let whole = collect(body, bytes_max, &mut share).await?;
        parts.extensions.insert(Arc::new(share));
        Ok(whole)
    }
}
