//! Ways to write an object: a `PUT`, the parts of an upload, a copy. All take the same conditions
//! (rule R7), so a client may use any way for any write.

use ::bytes::Bytes;

use super::RecordedClient;
use crate::s3::{LostReply, Reply};

/// Bucket of the sources of copies; not recorded.
pub const SOURCES: &str = "sources";

/// Way to write an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMethod {
    /// `PutObject`.
    #[default]
    Put,
    /// An upload of one part, then `CompleteMultipartUpload`.
    Parts,
    /// `CopyObject` of an object in [`SOURCES`].
    Copy,
}

/// Outcome of a write.
pub(super) enum WriteAttempt {
    /// The write failed before the call that changes the key.
    NotBegun,
    /// Reply to the call that changes the key.
    Answered(Result<Reply, LostReply>),
}

impl RecordedClient {
    /// Writes an object in the client's way.
    pub(super) async fn write(
        &mut self,
        target: &str,
        name: &str,
        condition: Option<(String, String)>,
        body: Bytes,
    ) -> WriteAttempt {
        match self.way {
            WriteMethod::Put => {
                WriteAttempt::Answered(self.send("PUT", target, condition, body).await)
            }
            WriteMethod::Parts => self.write_parts(target, condition, body).await,
            WriteMethod::Copy => self.write_copy(target, name, condition, body).await,
        }
    }

    async fn write_parts(
        &mut self,
        target: &str,
        condition: Option<(String, String)>,
        body: Bytes,
    ) -> WriteAttempt {
        let begun = self.send("POST", &format!("{target}?uploads="), None, Bytes::new()).await;
        let Some(begun) = good(begun) else { return WriteAttempt::NotBegun };
        let id = begun.all("UploadId").remove(0);
        let part = format!("{target}?partNumber=1&uploadId={id}");
        let Some(part) = good(self.send("PUT", &part, None, body).await) else {
            return WriteAttempt::NotBegun;
        };
        let document = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part>\
             </CompleteMultipartUpload>",
            part.header("etag")
        );
        let target = format!("{target}?uploadId={id}");
        let reply = self.send("POST", &target, condition, document.into()).await;
        WriteAttempt::Answered(reply.map(told))
    }

    async fn write_copy(
        &mut self,
        target: &str,
        name: &str,
        condition: Option<(String, String)>,
        body: Bytes,
    ) -> WriteAttempt {
        let source = format!("/{SOURCES}/{name}");
        // A copy may not see a source that was stored by less than a quorum (rule A1).
        let is_seen = |reply: &Reply| reply.header("x-martlet-consistency") == "quorum";
        if !good(self.send("PUT", &source, None, body).await).is_some_and(|it| is_seen(&it)) {
            return WriteAttempt::NotBegun;
        }
        let headers = [Some(("x-amz-copy-source".to_owned(), source)), condition];
        let headers = headers.into_iter().flatten();
        WriteAttempt::Answered(self.send("PUT", target, headers, Bytes::new()).await.map(told))
    }
}

fn good(reply: Result<Reply, LostReply>) -> Option<Reply> {
    reply.ok().filter(|reply| reply.status == 200)
}

/// Returns the reply with the status of its document. A long call begins its reply with 200 and may
/// end it with an error. The `ETag` comes from the document, too.
fn told(mut reply: Reply) -> Reply {
    if let Some(code) = reply.all("Code").first().filter(|_| reply.status == 200) {
        reply.status = match code.as_str() {
            "PreconditionFailed" => 412,
            "NoSuchKey" => 404,
            "ConditionalRequestConflict" => 409,
            _ => 503,
        };
    }
    if let Some(etag) = reply.all("ETag").first() {
        let etag = etag.replace("&quot;", "\"");
        reply.headers.insert("etag", etag.parse().unwrap());
    }
    reply
}
