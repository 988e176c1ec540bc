//! Client of the admin API: one request and its reply.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(
            |error| Failure::refused(format!("the async runtime could not be started: {error}")),
        )?;
        let (status, body) = runtime.block_on(async {
            let target = target(path, query);
            match tokio::time::timeout(self.patience, self.exchange(method, &target, body)).await {
                Ok(answer) => answer,
                Err(_) => {
                    Err(Failure::refused(format!("{} does not answer in time", self.address)))
                }
            }
        })?;
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
        let exchange = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            Ok((status, response.into_body().collect().await?.to_bytes()))
        };
        let answer: Result<_, hyper::Error> = tokio::select! {
            answer = exchange => answer,
            Err(error) = connection => Err(error),
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
