//! Writes of a recorded client, in each way.

use ::bytes::Bytes;

use super::client::RecordedClient;
use super::write_methods::{SOURCES, WriteAttempt, WriteMethod};
use crate::s3::{LostReply, Reply};

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
        WriteAttempt::Answered(reply.map(with_status_of_document))
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
        WriteAttempt::Answered(
            self.send("PUT", target, headers, Bytes::new()).await.map(with_status_of_document),
        )
    }
}

fn good(reply: Result<Reply, LostReply>) -> Option<Reply> {
    reply.ok().filter(|reply| reply.status == 200)
}

/// Returns the reply with the status of its document. A long call begins its reply with 200 and may
/// end it with an error. The `ETag` comes from the document, too.
fn with_status_of_document(mut reply: Reply) -> Reply {
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
