//! HTTP requests for the bench's calls, signed as the arguments require.

use std::collections::HashMap;
use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::http::request::Builder;
use hyper::{Method, Request, Uri, header};
use martlet_protocol::{Clock, SystemClock};
use md5::{Digest, Md5};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use sha2::Sha256;

use super::args::{BenchArgs, BenchOperation, SigningMethod};
use super::chunked::{self, ChunkedBody};
use super::connection::Endpoint;
use super::error::{BenchError, BenchResult};
use super::plan::{BenchRequest, PAGE_KEYS};
use super::sign::{SignedRequest, Signer, SigningIdentity, UNSIGNED_PAYLOAD};

/// Lifetime of presigned URLs, longer than any run.
const EXPIRES_S: u64 = 24 * 60 * 60;

/// Builder of one worker's requests. Clones share only the bytes of the body.
#[derive(Clone)]
pub(super) struct Requests {
    pub(super) endpoint: Endpoint,
    signing: SigningMethod,
    signer: Signer,
    bucket: String,
    prefix: String,
    /// Body of every PUT.
    body: Bytes,
    body_sha256: String,
    /// Body of every PUT as it is sent, if it is aws-chunked.
    chunked: Option<ChunkedBody>,
    /// Presigned URLs of objects that are read, by path.
    presigned: HashMap<String, Uri>,
}

/// HTTP parts of a call.
struct RequestParts {
    method: Method,
    path: String,
    query: String,
    body: Bytes,
}

impl Requests {
    pub(super) fn new(args: &BenchArgs) -> BenchResult<Self> {
        let endpoint = Endpoint::resolve(&args.endpoint, args.http2)?;
        let identity = SigningIdentity {
            access_key: args.access_key.clone(),
            secret_key: args.secret_key.clone(),
            region: args.region.clone(),
        };
        let body = body(args)?;
        let signing = args.signing();
        let body_sha256 = match signing {
            SigningMethod::Payload => hex::encode(Sha256::digest(&body)),
            _ => UNSIGNED_PAYLOAD.to_owned(),
        };
        Ok(Self {
            signer: Signer::new(identity, &endpoint.host),
            endpoint,
            signing,
            bucket: args.bucket.clone(),
            prefix: args.prefix.clone(),
            chunked: (signing == SigningMethod::Chunked).then(|| ChunkedBody::new(&body)),
            body,
            body_sha256,
            presigned: HashMap::new(),
        })
    }

    /// Returns a builder that signs headers, whatever the run uses.
    pub(super) fn signing_headers(&self) -> Self {
        Self {
            signing: SigningMethod::Headers,
            body_sha256: UNSIGNED_PAYLOAD.to_owned(),
            chunked: None,
            ..self.clone()
        }
    }

    /// Builds the request for a call.
    pub(super) fn request(&mut self, call: &BenchRequest) -> Request<Full<Bytes>> {
        let words = self.words(call);
        let mut request =
            Request::builder().method(&words.method).header(header::HOST, &self.endpoint.host);
        if let BenchRequest::Range { first, last, .. } = call {
            request = request.header(header::RANGE, format!("bytes={first}-{last}"));
        }
        if words.method == Method::PUT {
            // hyper sends no `Content-Length` for an empty body by itself.
            request = request.header(header::CONTENT_LENGTH, words.body.len());
        }
        if let BenchRequest::DeleteMany { .. } = call {
            let md5 = STANDARD.encode(Md5::digest(&words.body));
            request = request.header("content-md5", md5);
        }
        self.sign(request, &words).body(Full::new(words.body)).expect("all parts are plain ASCII")
    }

    /// Returns the object bytes in the body of a call's request.
    pub(super) fn bytes_sent(&self, call: &BenchRequest) -> u64 {
        match call {
            BenchRequest::Put { .. } => self.body.len() as u64,
            BenchRequest::PutBytes { bytes, .. } => *bytes,
            _ => 0,
        }
    }

    fn words(&self, call: &BenchRequest) -> RequestParts {
        let bucket = format!("/{}", self.bucket);
        let object = |method, key: &String| RequestParts {
            method,
            path: format!("{bucket}/{key}"),
            query: String::new(),
            body: Bytes::new(),
        };
        match call {
            BenchRequest::Put { key } => {
                let body = self.chunked.as_ref().map_or(&self.body, |chunked| &chunked.bytes);
                RequestParts { body: body.clone(), ..object(Method::PUT, key) }
            }
            BenchRequest::PutBytes { key, bytes } => {
                let length = usize::try_from(*bytes).expect("at most the length of the body");
                RequestParts { body: self.body.slice(..length), ..object(Method::PUT, key) }
            }
            BenchRequest::Get { key } | BenchRequest::Range { key, .. } => object(Method::GET, key),
            BenchRequest::Delete { key } => object(Method::DELETE, key),
            BenchRequest::List => self.list(bucket, ""),
            BenchRequest::ListAfter { key } => {
                self.list(bucket, &format!("&start-after={}", key.replace('/', "%2F")))
            }
            BenchRequest::DeleteMany { keys } => RequestParts {
                method: Method::POST,
                path: bucket,
                query: "delete=".to_owned(),
                body: delete_document(keys).into(),
            },
            BenchRequest::MakeBucket => bare(Method::PUT, bucket),
            BenchRequest::RemoveBucket => bare(Method::DELETE, bucket),
        }
    }

    /// Returns a listing with `start` as the end of its query.
    fn list(&self, path: String, start: &str) -> RequestParts {
        let prefix = self.prefix.replace('/', "%2F");
        let query = format!("list-type=2&max-keys={PAGE_KEYS}&prefix={prefix}%2F{start}");
        RequestParts { method: Method::GET, path, query, body: Bytes::new() }
    }

    fn sign(&mut self, request: Builder, words: &RequestParts) -> Builder {
        let RequestParts { method, path, query, body } = words;
        let whole = body.len() == self.body.len();
        let chunked = self.chunked.as_ref().filter(|_| method == Method::PUT && !body.is_empty());
        let payload: &str = match chunked {
            Some(_) => chunked::PAYLOAD,
            None if whole => &self.body_sha256,
            None => UNSIGNED_PAYLOAD,
        };
        let extra = chunked.map_or(&[][..], |chunked| &chunked.headers[..]);
        let signed = SignedRequest { method: method.as_str(), path, query, payload, extra };
        let now_ms = SystemClock.now_ms();
        match self.signing {
            SigningMethod::None => request.uri(uri(path, query)),
            SigningMethod::Presigned if method == Method::GET => {
                let url = self
                    .presigned
                    .entry(path.clone())
                    .or_insert_with(|| uri(path, &self.signer.presign(signed, now_ms, EXPIRES_S)));
                request.uri(url.clone())
            }
            SigningMethod::Presigned => {
                request.uri(uri(path, &self.signer.presign(signed, now_ms, EXPIRES_S)))
            }
            SigningMethod::Headers | SigningMethod::Payload | SigningMethod::Chunked => {
                let signature = self.signer.headers(signed, now_ms);
                let mut request = request
                    .uri(uri(path, query))
                    .header("x-amz-date", signature.date)
                    .header("x-amz-content-sha256", payload)
                    .header(header::AUTHORIZATION, signature.authorization);
                if !extra.is_empty() {
                    request = request.header(header::CONTENT_ENCODING, "aws-chunked");
                }
                extra.iter().fold(request, |request, (name, value)| request.header(*name, value))
            }
        }
    }
}

fn bare(method: Method, path: String) -> RequestParts {
    RequestParts { method, path, query: String::new(), body: Bytes::new() }
}

fn uri(path: &str, query: &str) -> Uri {
    let text = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    text.parse().expect("paths and queries are canonically encoded")
}

fn delete_document(keys: &[String]) -> String {
    let mut xml = "<Delete><Quiet>true</Quiet>".to_owned();
    for key in keys {
        write!(xml, "<Object><Key>{key}</Key></Object>").expect("writing to a String can't fail");
    }
    xml.push_str("</Delete>");
    xml
}

/// Makes an incompressible body. For lists and deletes it has at most 1 KiB, as these measure keys.
fn body(args: &BenchArgs) -> BenchResult<Bytes> {
    let size = match args.op {
        BenchOperation::List | BenchOperation::Delete => args.size.0.min(1024),
        _ => args.object_bytes(),
    };
    let size = usize::try_from(size).map_err(BenchError::new)?;
    let mut body = vec![0; size];
    SmallRng::seed_from_u64(0).fill_bytes(&mut body);
    Ok(body.into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::args::BenchCli;
    use super::*;

    fn requests(flags: &str) -> Requests {
        let line = format!("bench --op get --access-key a --secret-key b{flags}");
        Requests::new(&BenchCli::try_parse_from(line.split(' ')).unwrap().bench).unwrap()
    }

    fn get() -> BenchRequest {
        BenchRequest::Get { key: "bench/1".to_owned() }
    }

    #[test]
    fn headers_are_signed_by_default() {
        let request = requests("").request(&get());
        assert_eq!(request.uri(), "/martlet-bench/bench/1");
        assert!(request.headers().contains_key("authorization"));
        assert_eq!(request.headers()["x-amz-content-sha256"], UNSIGNED_PAYLOAD);

        let request = requests(" --unsigned --prepared").request(&get());
        assert!(!request.headers().contains_key("authorization"));
        assert_eq!(request.headers().len(), 1, "{:?}", request.headers());
    }

    #[test]
    fn a_presigned_url_is_made_once() {
        let mut requests = requests(" --presigned");
        let first = requests.request(&get()).uri().clone();
        assert!(first.query().unwrap().contains("X-Amz-Signature="));
        assert_eq!(&first, requests.request(&get()).uri());
        assert_eq!(requests.presigned.len(), 1);
    }

    #[test]
    fn a_signed_payload_is_hashed() {
        let mut requests = requests(" --signed-payload --size 3");
        let put = requests.request(&BenchRequest::Put { key: "k".to_owned() });
        let hash = hex::encode(Sha256::digest(&requests.body));
        assert_eq!(put.headers()["x-amz-content-sha256"], hash.as_str());
        let list = requests.request(&BenchRequest::List);
        assert_eq!(list.uri().query(), Some("list-type=2&max-keys=1000&prefix=bench%2F"));
        assert_eq!(list.headers()["x-amz-content-sha256"], UNSIGNED_PAYLOAD);
    }

    #[test]
    fn chunked_objects_are_counted_without_their_encoding() {
        let mut requests = requests(" --chunked --size 5");
        let put = BenchRequest::Put { key: "k".to_owned() };
        assert_eq!(requests.bytes_sent(&put), 5);
        let request = requests.request(&put);
        assert_eq!(request.headers()["x-amz-content-sha256"], chunked::PAYLOAD);
        assert_eq!(request.headers()["x-amz-decoded-content-length"], "5");
        assert_eq!(request.headers()["content-encoding"], "aws-chunked");
        let length = requests.chunked.as_ref().unwrap().bytes.len().to_string();
        assert_eq!(request.headers()["content-length"], length.as_str());
        let read = requests.request(&get());
        assert_eq!(read.headers()["x-amz-content-sha256"], UNSIGNED_PAYLOAD);
        assert!(!read.headers().contains_key("content-encoding"));
    }

    #[test]
    fn a_list_may_begin_after_a_key() {
        let call = BenchRequest::ListAfter { key: "bench/1".to_owned() };
        let query = "list-type=2&max-keys=1000&prefix=bench%2F&start-after=bench%2F1";
        assert_eq!(requests("").request(&call).uri().query(), Some(query));
    }

    #[test]
    fn many_keys_are_deleted_at_once() {
        let call = BenchRequest::DeleteMany { keys: vec!["a".to_owned(), "b".to_owned()] };
        let request = requests("").request(&call);
        assert_eq!(request.uri(), "/martlet-bench?delete=");
        assert!(request.headers().contains_key("content-md5"));
    }
}
