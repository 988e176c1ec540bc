//! Control socket in the cluster's folder, by which commands reach its running `up`.
//!
//! * Access to the socket is control of the cluster, so its mode is 0600.
//! * A request and its reply are one line of JSON each. Requests are handled one after the other.
//! * A socket's path has at most 107 bytes, and a folder's path may be longer. So the socket is
//!   addressed through a descriptor of the folder.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use martlet_admin_api::control::{ControlReply, ControlRequest};
use martlet_serving::Failure;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const NAME: &str = "control.sock";
/// Timeout for reading a request.
const ARRIVAL: Duration = Duration::from_secs(5);
/// Timeout for the reply to a command. Starting and stopping can take minutes.
const PATIENCE: Duration = Duration::from_mins(5);
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Request, and the channel for its reply.
pub(super) type PendingRequest = (ControlRequest, oneshot::Sender<ControlReply>);

/// Listening side of the socket. Dropping it removes the socket.
pub(super) struct Control {
    requests: mpsc::Receiver<PendingRequest>,
    task: JoinHandle<()>,
    path: PathBuf,
}

impl Control {
    /// Listens in a folder that this process has locked.
    pub(super) fn listen(dir: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::refused(format!(
                "the control socket in {} can't be created: {error}",
                dir.display()
            ))
        };
        let path = dir.join(NAME);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let folder = File::open(dir).map_err(failed)?;
        let listener = UnixListener::bind(short(&folder)).map_err(failed)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed)?;
        let (sender, requests) = mpsc::channel(1);
        let task = tokio::spawn(accept(listener, sender));
        Ok(Self { requests, task, path })
    }

    /// Waits for the next request.
    pub(super) async fn next(&mut self) -> PendingRequest {
        match self.requests.recv().await {
            Some(request) => request,
            // The accepting task ends only when `self` is dropped.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.task.abort();
        let _ = fs::remove_file(&self.path);
    }
}

fn short(folder: &File) -> PathBuf {
    format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd()).into()
}

async fn accept(listener: UnixListener, requests: mpsc::Sender<PendingRequest>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                eprintln!("martlet: a command could not connect: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        tokio::spawn(serve(stream, requests.clone()));
    }
}

async fn serve(mut stream: tokio::net::UnixStream, requests: mpsc::Sender<PendingRequest>) {
    let (read, mut write) = stream.split();
    let mut line = Vec::new();
    let mut read = tokio::io::BufReader::new(read.take(LINE_BYTES_MAX));
    if !matches!(timeout(ARRIVAL, read.read_until(b'\n', &mut line)).await, Ok(Ok(_))) {
        return;
    }
    let reply = match serde_json::from_slice(&line) {
        Ok(request) => {
            let (sender, reply) = oneshot::channel();
            if requests.send((request, sender)).await.is_err() {
                return;
            }
            let stopping = ControlReply::Refused("the cluster is stopping".to_owned());
            reply.await.unwrap_or(stopping)
        }
        Err(error) => ControlReply::Refused(format!("not a request of this version: {error}")),
    };
    let mut line = serde_json::to_vec(&reply).expect("plain data can be encoded");
    line.push(b'\n');
    // The client may have disconnected.
    let _ = write.write_all(&line).await;
}

/// Returns true if an `up` runs for the cluster of a folder.
pub(super) fn is_watched(dir: &Path) -> bool {
    connect(dir).is_ok()
}

fn connect(dir: &Path) -> std::io::Result<UnixStream> {
    UnixStream::connect(short(&File::open(dir)?))
}

/// Sends a request to the `up` of the cluster in a folder, and returns its reply.
pub(super) fn send_command(dir: &Path, request: &ControlRequest) -> Result<ControlReply, Failure> {
    let mut stream = connect(dir).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Failure::refused(format!(
            "no cluster runs in {dir}: start it with `martlet cluster up --data-dir {dir}`, or name \
             its folder with --data-dir",
            dir = dir.display()
        )),
        _ => Failure::refused(format!("{} can't be reached: {error}", dir.display())),
    })?;
    exchange(&mut stream, request).map_err(|error| {
        Failure::refused(format!("the cluster in {} did not answer: {error}", dir.display()))
    })
}

fn exchange(stream: &mut UnixStream, request: &ControlRequest) -> std::io::Result<ControlReply> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = Vec::new();
    BufReader::new(stream).read_until(b'\n', &mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}

#[cfg(test)]
mod tests {
    use martlet_admin_api::control::TargetSelector;

    use super::*;

    async fn send_test_command(
        dir: &Path,
        request: ControlRequest,
    ) -> Result<ControlReply, Failure> {
        let dir = dir.to_owned();
        tokio::task::spawn_blocking(move || send_command(&dir, &request)).await.unwrap()
    }

    #[tokio::test]
    async fn a_request_comes_and_its_reply_goes() {
        let place = tempfile::tempdir().unwrap();
        // Longer than the limit on a socket's path.
        let dir = place.path().join("a".repeat(120));
        fs::create_dir(&dir).unwrap();
        let mut control = Control::listen(&dir).unwrap();
        let mode = fs::metadata(dir.join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let answering = async {
            let (request, reply) = control.next().await;
            assert_eq!(request, ControlRequest::Kill { which: TargetSelector::Node(2) });
            reply.send(ControlReply::Done(vec!["killed".into()])).unwrap();
        };
        let request =
            send_test_command(&dir, ControlRequest::Kill { which: TargetSelector::Node(2) });
        let (reply, ()) = tokio::join!(request, answering);
        assert_eq!(reply.unwrap(), ControlReply::Done(vec!["killed".into()]));
        assert!(is_watched(&dir));
        drop(control);
        assert!(!is_watched(&dir) && !dir.join(NAME).exists());
    }

    #[tokio::test]
    async fn without_a_running_cluster_the_error_names_the_command() {
        let place = tempfile::tempdir().unwrap();
        let refusal =
            send_test_command(place.path(), ControlRequest::Status).await.unwrap_err().to_string();
        assert!(refusal.contains("no cluster runs in"), "{refusal}");
        assert!(refusal.contains("martlet cluster up --data-dir"), "{refusal}");
        let nowhere = place.path().join("nowhere");
        assert!(send_test_command(&nowhere, ControlRequest::Status).await.is_err());
        // The socket of a killed `up` does not block the next one.
        drop(std::os::unix::net::UnixListener::bind(place.path().join(NAME)).unwrap());
        let refusal =
            send_test_command(place.path(), ControlRequest::Status).await.unwrap_err().to_string();
        assert!(refusal.contains("no cluster runs in"), "{refusal}");
        Control::listen(place.path()).unwrap();
    }

    #[tokio::test]
    async fn malformed_commands_are_refused_and_silent_clients_block_no_others() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().to_owned();
        let mut control = Control::listen(&dir).unwrap();
        let _silent = connect(&dir).unwrap();
        let answer = tokio::task::spawn_blocking(move || {
            let mut stream = connect(&dir).unwrap();
            stream.write_all(b"{\"ask\":\"explode\"}\n").unwrap();
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).unwrap();
            line
        });
        let answer = tokio::select! {
            answer = answer => answer.unwrap(),
            (request, _) = control.next() => panic!("it was taken for {request:?}"),
        };
        assert!(answer.contains("not a request of this version"), "{answer}");
    }
}
