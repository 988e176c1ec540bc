//! Client of the admin API: one request and its reply.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use martlet_admin_api::ErrorReply;
use martlet_membership::ClusterSecret;
use martlet_serving::{AdminToken, Failure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use crate::server::credentials::{self, Credentials};

const PATIENCE: Duration = Duration::from_mins(1);
/// Longest reply of a process.
const REPLY_BYTES_MAX: usize = 256 << 20;

/// Admin API of a process.
pub(crate) struct AdminEndpoint {
    address: SocketAddr,
    token: String,
    patience: Duration,
}

impl AdminEndpoint {
    /// Makes a client of the process at `address`. Its secret is the cluster's key if a key file is
    /// named. Otherwise it is the root secret from the environment or from `data_dir`.
    pub(crate) fn new(
        address: SocketAddr,
        data_dir: &Path,
        cluster_key_file: Option<&Path>,
    ) -> Result<Self, Failure> {
        let token = match cluster_key_file {
            Some(file) => ClusterSecret::load(file)?.token,
            None => root_token(data_dir)?,
        };
        Ok(Self { address, token: token.to_text(), patience: PATIENCE })
    }

    /// Returns this client with another timeout.
    pub(crate) fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Returns the address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a client of another process with the same secret.
    pub(crate) fn at(&self, address: SocketAddr) -> Self {
        Self { address, token: self.token.clone(), patience: self.patience }
    }

    /// Sends a GET request and returns the reply as text.
    pub(crate) fn request_text(&self, path: &str) -> Result<String, Failure> {
        let (status, body) = self.reply_to(Method::GET, path, &[], Bytes::new())?;
        if status != StatusCode::OK {
            return Err(Failure::refused(format!("{} answered {status}", self.address)));
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Sends a GET request and decodes the reply.
    pub(crate) fn request_json<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Failure> {
        self.send(Method::GET, path, query, Bytes::new())
    }

    /// Sends a PUT request with a query and decodes the reply.
    pub(crate) fn set<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Failure> {
        self.send(Method::PUT, path, query, Bytes::new())
    }

    /// Sends a POST request with a JSON body and decodes the reply.
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        self.send(Method::POST, path, &[], json(body))
    }

    /// Sends a PUT request with a JSON body and decodes the reply.
    pub(crate) fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        self.send(Method::PUT, path, &[], json(body))
    }

    /// Sends a DELETE request and decodes the reply.
    pub(crate) fn delete<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Failure> {
        self.send(Method::DELETE, path, query, Bytes::new())
    }

    fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Bytes,
    ) -> Result<T, Failure> {
        let (status, body) = self.reply_to(method, path, query, body)?;
        if status == StatusCode::OK {
            return serde_json::from_slice(&body).map_err(|error| {
                Failure::refused(format!(
                    "{} does not answer as a Martlet of this version: {error}",
                    self.address
                ))
            });
        }
        let sentence = match serde_json::from_slice(&body) {
            Ok(ErrorReply { error }) if status != StatusCode::UNAUTHORIZED => error,
            _ if status == StatusCode::UNAUTHORIZED => {
                "the secret is wrong: name the server's data folder with --data-dir, set \
                 MARTLET_ROOT_SECRET_KEY, or name the key of its cluster with --cluster-key-file"
                    .to_owned()
            }
            _ => format!("{} answered {status}", self.address),
        };
        Err(Failure::refused(sentence))
    }

    /// Sends a request and returns status and body of the reply.
    fn reply_to(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(
            |error| Failure::refused(format!("the async runtime could not be started: {error}")),
        )?;
        runtime.block_on(async {
            let target = target(path, query);
            match tokio::time::timeout(self.patience, self.exchange(method, &target, body)).await {
                Ok(answer) => answer,
                Err(_) => {
                    Err(Failure::refused(format!("{} does not answer in time", self.address)))
                }
            }
        })
    }

    async fn exchange(
        &self,
        method: Method,
        target: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let broken = |error: &dyn std::fmt::Display| {
            Failure::refused(format!(
                "no server answers at {}: {error}; check that it is running and that this is its \
                 admin address",
                self.address
            ))
        };
        let stream = TcpStream::connect(self.address).await.map_err(|error| broken(&error))?;
        stream.set_nodelay(true).map_err(|error| broken(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header(header::HOST, self.address.to_string())
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .body(Full::new(body))
            .expect("target, host and token are valid in a request's head");
        let text = |error: hyper::Error| error.to_string();
        let exchange = async {
            let response = sender.send_request(request).await.map_err(text)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), REPLY_BYTES_MAX).collect().await;
            Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
        };
        let answer: Result<_, String> = tokio::select! {
            answer = exchange => answer,
            Err(error) = connection => Err(text(error)),
        };
        answer.map_err(|error| broken(&error))
    }
}

fn json(body: &impl Serialize) -> Bytes {
    serde_json::to_vec(body).expect("plain data can be encoded").into()
}

fn root_token(data_dir: &Path) -> Result<AdminToken, Failure> {
    if let Ok(secret) = std::env::var("MARTLET_ROOT_SECRET_KEY") {
        return Ok(AdminToken::of(secret.as_bytes()));
    }
    let credentials = Credentials::read(&data_dir.join(credentials::FILE))?.ok_or_else(|| {
        Failure::refused(format!(
            "no credentials in {}: name the server's data folder with --data-dir, set \
             MARTLET_ROOT_SECRET_KEY, or name the key of a cluster with --cluster-key-file",
            data_dir.display()
        ))
    })?;
    Ok(credentials.admin_token())
}

fn target(path: &str, query: &[(&str, &str)]) -> String {
    let mut target = path.to_owned();
    for (at, (name, value)) in query.iter().enumerate() {
        target.push(if at == 0 { '?' } else { '&' });
        target.push_str(name);
        target.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() {
                target.push(char::from(byte));
            } else {
                let _ = write!(target, "%{byte:02X}");
            }
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_keys_survive_the_query() {
        let target = target("/p", &[("bucket", "b"), ("key", "a b+c/ü&d")]);
        assert_eq!(target, "/p?bucket=b&key=a%20b%2Bc%2F%C3%BC%26d");
    }
}
