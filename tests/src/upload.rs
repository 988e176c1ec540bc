//! A multipart upload, part by part.

use std::fmt::Write as _;

use ::bytes::Bytes;

use crate::s3::{Reply, S3};

/// An upload that has begun.
#[derive(Clone, Debug)]
pub struct Upload {
    object: String,
    id: String,
    tags: Vec<(usize, String)>,
}

impl Upload {
    /// Begins an upload of the object `/bucket/key`.
    pub async fn begin(client: &mut S3, object: &str) -> Self {
        let reply = client.send("POST", &format!("{object}?uploads="), Bytes::new()).await.unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        let id = reply.all("UploadId").remove(0);
        Self { object: object.to_owned(), id, tags: Vec::new() }
    }

    /// Request target of part `number`.
    pub fn target(&self, number: usize) -> String {
        format!("{}?partNumber={number}&uploadId={}", self.object, self.id)
    }

    /// Records a part's `ETag`.
    pub fn part(&mut self, number: usize, tag: &str) {
        self.tags.push((number, tag.to_owned()));
    }

    /// Target and body of the request that completes the upload with the recorded parts.
    pub fn completion(&self) -> (String, String) {
        let mut tags = self.tags.clone();
        tags.sort();
        let mut document = "<CompleteMultipartUpload>".to_owned();
        for (number, tag) in &tags {
            let part = format_args!("<PartNumber>{number}</PartNumber><ETag>{tag}</ETag>");
            let _ = write!(document, "<Part>{part}</Part>");
        }
        document.push_str("</CompleteMultipartUpload>");
        (format!("{}?uploadId={}", self.object, self.id), document)
    }

    /// Completes the upload; panics if the server refuses it.
    pub async fn complete(self, client: &mut S3) -> Reply {
        let (target, document) = self.completion();
        let reply = client.send("POST", &target, document.into()).await.unwrap();
        assert_eq!((reply.status, reply.all("Code")), (200, Vec::new()), "{}", reply.text());
        reply
    }
}
