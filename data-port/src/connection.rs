//! Requests and replies on one connection.
//!
//! A request is refused after its head, or answered; then the next one is read. Replies of bytes
//! that the client verifies are sent by the kernel from the page cache where the connection is in
//! clear. All other bytes are written from buffers that were verified.
//!
//! A client that takes less than the minimum rate over the write timeout, or sends no whole head within
//! the header timeout, is disconnected.

use std::future::Future;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use martlet_protocol::ByteStream;
use martlet_serving::listen::{self, AcceptedConnection, HEAD_BYTES_MAX, Limits, Port};
use martlet_serving::wait_for_stop;
use martlet_storage_node::{ExtentInPlace, SendEnd, SentBytes};
use rustix::net::{SendFlags, Shutdown};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;

use crate::answer::{DataPortServer, Origin, Piece};
use crate::head::{DataRequest, HeadRefusal, ParsedHead, Verifier, parse};
use crate::progress::ReplyProgress;
use crate::reply_head::Refusal;

/// Shortest range that is sent by the kernel. Shorter ones cost less as a copy.
const SENT_BYTES_MIN: u64 = 64 * 1024;

/// Bytes of a connection, in clear or in TLS.
enum Transport {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
    /// With a sending thread. A connection whose send ends early stays so, and is closed.
    Lent,
}

/// A connection, and the bytes that were received and not used yet.
struct Conversation {
    transport: Transport,
    received: Vec<u8>,
    limits: Limits,
    /// Minimum rate of replies.
    bytes_per_second_min: u64,
}

impl DataPortServer {
    /// Serves connections of a port until `stop`, then waits for replies for at most `drain`.
    /// Returns true if all of them ended in time.
    pub async fn serve(
        self: Arc<Self>,
        port: Port,
        limits: Limits,
        stop: watch::Receiver<bool>,
        drain: Duration,
    ) -> bool {
        let converse = move |accepted: AcceptedConnection| {
            let server = self.clone();
            async move {
                if let Err(error) = server.converse(accepted).await {
                    tracing::debug!(%error, "a connection of the data port ended early");
                }
            }
        };
        listen::serve_connections(port.for_http1(), limits, stop, drain, converse).await
    }

    async fn converse(&self, accepted: AcceptedConnection) -> io::Result<()> {
        let (place, limits) = (accepted.place, accepted.limits);
        let (peer, mut stop) = (accepted.client.ip(), accepted.stop);
        accepted.stream.set_nodelay(true)?;
        let transport = match accepted.tls {
            None => Transport::Plain(accepted.stream),
            Some(tls) => {
                let handshake = tls.accept(accepted.stream);
                Transport::Secure(Box::new(within(limits.header_timeout, handshake).await?))
            }
        };
        let bytes_per_second_min = self.limits.bytes_per_second_min;
        let mut conversation =
            Conversation { transport, received: Vec::new(), limits, bytes_per_second_min };
        loop {
            let head = tokio::select! {
                head = conversation.next_head() => head?,
                () = wait_for_stop(&mut stop) => return Ok(()),
            };
            let _under_way = place.begin();
            let keeps_alive = match head {
                None => return Ok(()),
                Some(Err(refusal)) => {
                    self.figures.answered(None, refusal.status);
                    conversation.write(refusal.text(false, true).as_bytes()).await?;
                    false
                }
                Some(Ok(request)) => {
                    let keeps_alive = request.keeps_alive && !*stop.borrow();
                    let origin = Origin { peer, proven: place.proven() };
                    // A connection may be dismissed at any wait.
                    let under_way = self.figures.begin();
                    let outcome = match self.answer(&request, &origin).await {
                        Err(refusal) => {
                            let text = refusal.text(keeps_alive, request.wants_bytes);
                            conversation.write(text.as_bytes()).await
                        }
                        Ok(piece) => {
                            self.reply(&mut conversation, &request, piece, keeps_alive).await
                        }
                    };
                    drop(under_way);
                    outcome?;
                    keeps_alive
                }
            };
            if !keeps_alive {
                return conversation.end().await;
            }
        }
    }

    async fn reply(
        &self,
        conversation: &mut Conversation,
        request: &DataRequest,
        mut piece: Piece,
        keeps_alive: bool,
    ) -> io::Result<()> {
        let head = piece.head().text(keeps_alive);
        if !request.wants_bytes {
            return conversation.write(head.as_bytes()).await;
        }
        let mut progress = conversation.progress();
        conversation.write_head(head.as_bytes(), &mut progress).await?;
        let length = piece.range.end - piece.range.start;
        let (verified, range) = (piece.verified.take(), piece.range.clone());
        let extent = &piece.extent;
        let sending = async {
            match verified {
                Some(bytes) => conversation.write_stream(bytes, &mut progress).await,
                None => conversation.send(extent, range, &mut progress).await,
            }
        };
        let outcome = tokio::select! {
            outcome = sending => outcome,
            () = self.space_needed(extent) => Err(io::ErrorKind::TimedOut.into()),
        };
        let sent = progress.sent();
        self.figures.sent(&piece.tenant, piece.verifier, sent);
        debug_assert!(piece.verifier == Verifier::Client || outcome.is_err() || sent == length);
        if sent < length {
            self.figures.cut();
            return Err(outcome.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
        }
        outcome
    }

    /// Waits until a reply must end, because a full device needs the space of its deleted extent.
    async fn space_needed(&self, extent: &ExtentInPlace) {
        extent.space_needed().await;
        sleep(self.limits.notice).await;
    }
}

impl Conversation {
    /// Reads the head of the next request. None if the client closed the connection, or sent
    /// nothing in time.
    async fn next_head(&mut self) -> io::Result<Option<Result<DataRequest, Refusal>>> {
        let limit = self.limits.header_timeout;
        match within(limit, self.read_head()).await {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
            head => head,
        }
    }

    async fn read_head(&mut self) -> io::Result<Option<Result<DataRequest, Refusal>>> {
        loop {
            match parse(&self.received) {
                ParsedHead::Request(request, length) => {
                    self.received.drain(..length);
                    return Ok(Some(Ok(request)));
                }
                ParsedHead::Refused(refusal) => return Ok(Some(Err(refusal_of(refusal)))),
                ParsedHead::Partial if self.received.len() >= HEAD_BYTES_MAX => {
                    let message = format!("a request's head may have {HEAD_BYTES_MAX} bytes");
                    return Ok(Some(Err(Refusal::new(431, None, message))));
                }
                ParsedHead::Partial => {}
            }
            // Reserves little: silent connections hold no more than what they sent.
            let mut bytes = [0; 2048];
            let read = self.transport.read(&mut bytes).await?;
            if read == 0 {
                return Ok(None);
            }
            self.received.extend_from_slice(&bytes[..read]);
        }
    }

    /// Begins a reply.
    fn progress(&self) -> ReplyProgress {
        ReplyProgress::new(self.limits.write_idle, self.bytes_per_second_min)
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut progress = self.progress();
        self.write_counted(bytes, &mut progress).await
    }

    /// Writes the head of a reply whose bytes follow at once. The kernel sends them together.
    async fn write_head(
        &mut self,
        mut head: &[u8],
        progress: &mut ReplyProgress,
    ) -> io::Result<()> {
        let Transport::Plain(stream) = &self.transport else { return self.write(head).await };
        while !head.is_empty() {
            let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
            let send = || Ok(rustix::net::send(stream, head, flags)?);
            let written = progress.wait(stream.async_io(Interest::WRITABLE, send)).await?;
            head = &head[written..];
        }
        Ok(())
    }

    /// Writes bytes, and counts them as the connection takes them.
    async fn write_counted(
        &mut self,
        mut bytes: &[u8],
        progress: &mut ReplyProgress,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = progress.wait(self.transport.write(bytes)).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            progress.took(written as u64);
            bytes = &bytes[written..];
        }
        match &mut self.transport {
            Transport::Secure(stream) => progress.wait(stream.flush()).await,
            Transport::Plain(_) | Transport::Lent => Ok(()),
        }
    }

    async fn write_stream(
        &mut self,
        mut bytes: ByteStream,
        progress: &mut ReplyProgress,
    ) -> io::Result<()> {
        while let Some(chunk) = bytes.next().await {
            let chunk = chunk.map_err(io::Error::other)?;
            self.write_counted(&chunk, progress).await?;
        }
        Ok(())
    }

    /// Sends bytes that the client verifies.
    async fn send(
        &mut self,
        extent: &ExtentInPlace,
        range: Range<u64>,
        progress: &mut ReplyProgress,
    ) -> io::Result<()> {
        let is_short = range.end - range.start < SENT_BYTES_MIN;
        match std::mem::replace(&mut self.transport, Transport::Lent) {
            Transport::Plain(stream) if !is_short && !extent.is_packed() => {
                let stream = self.send_by_kernel(stream, extent, range, progress).await?;
                self.transport = Transport::Plain(stream);
                Ok(())
            }
            transport => {
                self.transport = transport;
                let bytes = extent.read_unverified(range).await.map_err(io::Error::other)?;
                self.write_stream(bytes, progress).await
            }
        }
    }

    /// Sends bytes from the page cache. The runtime doesn't watch the socket meanwhile: each time that
    /// the client takes bytes, the runtime would wake for nothing.
    async fn send_by_kernel(
        &self,
        mut stream: TcpStream,
        extent: &ExtentInPlace,
        range: Range<u64>,
        progress: &mut ReplyProgress,
    ) -> io::Result<TcpStream> {
        let mut at = range.start;
        loop {
            let unwatched = stream.into_std()?;
            let socket: Arc<OwnedFd> = Arc::new(unwatched.try_clone()?.into());
            let lent = LentSocket(Some(socket.clone()));
            while at < range.end {
                let outcome = extent.send_unverified(&socket, at..range.end).await;
                let SentBytes { bytes, end, waited } = outcome.map_err(io::Error::other)?;
                progress.waited(waited);
                at += bytes;
                progress.took(bytes);
                match end {
                    SendEnd::Taken => {}
                    SendEnd::Full => break,
                    SendEnd::Failed => {
                        return Err(io::Error::other("the outcome of a send is not known"));
                    }
                }
            }
            stream = TcpStream::from_std(unwatched)?;
            lent.give_back();
            if at == range.end {
                return Ok(stream);
            }
            progress.wait(stream.writable()).await?;
        }
    }

    /// Ends the connection in order.
    async fn end(mut self) -> io::Result<()> {
        let limit = self.limits.write_idle;
        match &mut self.transport {
            Transport::Plain(stream) => within(limit, stream.shutdown()).await,
            Transport::Secure(stream) => within(limit, stream.shutdown()).await,
            Transport::Lent => Ok(()),
        }
    }
}

impl Transport {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer).await,
            Self::Secure(stream) => stream.read(buffer).await,
            Self::Lent => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes).await,
            Self::Secure(stream) => stream.write(bytes).await,
            Self::Lent => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// A socket that threads of a device have. A send that hangs keeps a descriptor of its own, so the
/// connection is shut down unless the socket comes back: the client would wait for the disk.
struct LentSocket(Option<Arc<OwnedFd>>);

impl LentSocket {
    fn give_back(mut self) {
        self.0 = None;
    }
}

impl Drop for LentSocket {
    fn drop(&mut self) {
        if let Some(socket) = self.0.take() {
            // The client may have closed the connection.
            let _ = rustix::net::shutdown(&socket, Shutdown::Both);
        }
    }
}

/// Ends with `TimedOut` after `limit`. Zero means no limit.
async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    if limit.is_zero() {
        return work.await;
    }
    let late = |_| Err(io::ErrorKind::TimedOut.into());
    timeout(limit, work).await.unwrap_or_else(late)
}

fn refusal_of(refusal: HeadRefusal) -> Refusal {
    match refusal {
        HeadRefusal::Malformed(message) => Refusal::new(400, None, message),
        HeadRefusal::Path => Refusal::new(404, None, "only pieces of extents are served here"),
        HeadRefusal::Method => Refusal::new(405, None, "only GET and HEAD are served here"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_that_does_not_come_back_is_shut_down_for_all_its_descriptors() {
        for comes_back in [false, true] {
            let (ours, mut peer) = UnixStream::pair().unwrap();
            let kept_by_a_hung_send = ours.try_clone().unwrap();
            peer.set_nonblocking(true).unwrap();
            let lent = LentSocket(Some(Arc::new(ours.into())));
            if comes_back {
                lent.give_back();
            } else {
                drop(lent);
            }
            let read = peer.read(&mut [0]);
            assert_eq!(read.is_ok_and(|bytes| bytes == 0), !comes_back);
            drop(kept_by_a_hung_send);
        }
    }
}
