//! Few threads that send files to many sockets: each waits for all of its own sockets at once.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::thread;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fs::sendfile;
use rustix::net::{SendFlags, send};

use crate::{Floor, Served, reply_head, within};

/// Most bytes of one call, as nginx's `sendfile_max_chunk`.
const SENT_AT_ONCE_MAX: usize = 2 * 1024 * 1024;
const LISTENER: u64 = 0;

/// Windows of verified bytes that no connection uses; the last one used is used first.
type Windows = Vec<Vec<u8>>;

struct Connection<'a> {
    stream: TcpStream,
    received: Vec<u8>,
    reply: Option<Reply<'a>>,
}

/// Bytes of a file that are left to send.
struct Reply<'a> {
    served: &'a Served,
    left: Range<u64>,
    /// Verified bytes before `left`, and those of them that the socket didn't take yet.
    window: Option<(Vec<u8>, Range<usize>)>,
}

/// Serves the files to all that connect, from `threads` threads.
pub(crate) fn serve(listener: &TcpListener, floor: &Floor, threads: usize) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| serve_from_one(listener, floor))).collect();
        threads.into_iter().try_for_each(|it| it.join().expect("a thread panicked"))
    })
}

fn serve_from_one(listener: &TcpListener, floor: &Floor) -> io::Result<()> {
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    let one_thread = EventFlags::IN | EventFlags::EXCLUSIVE;
    epoll::add(&set, listener, EventData::new_u64(LISTENER), one_thread)?;
    let mut connections: HashMap<u64, Connection<'_>> = HashMap::new();
    let mut windows = Windows::new();
    loop {
        let mut events: Vec<Event> = Vec::with_capacity(64);
        epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in events {
            let number = event.data.u64();
            if number == LISTENER {
                let stream = match listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    Err(error) => return Err(error),
                };
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let number = u64::try_from(stream.as_raw_fd()).expect("a descriptor is positive");
                let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
                epoll::add(&set, &stream, EventData::new_u64(number), flags)?;
                let connection = Connection { stream, received: Vec::new(), reply: None };
                connections.insert(number, connection);
            } else if let Some(connection) = connections.get_mut(&number)
                && !connection.go_on(floor, &mut windows).unwrap_or(false)
            {
                connections.remove(&number);
            }
        }
    }
}

/// Outcome of a step of a connection.
enum Step {
    Done,
    WouldBlock,
    Ended,
}

impl<'a> Connection<'a> {
    /// Sends and receives until the socket would block. False at the end of the connection.
    fn go_on(&mut self, floor: &'a Floor, windows: &mut Windows) -> io::Result<bool> {
        loop {
            if let Some(reply) = &mut self.reply {
                let step = match reply.served.checksums {
                    Some(_) => reply.send_verified(&self.stream, floor.window, windows)?,
                    None => reply.send_file(&self.stream)?,
                };
                match step {
                    Step::Done => self.reply = None,
                    Step::WouldBlock => return Ok(true),
                    Step::Ended => return Ok(false),
                }
            }
            let mut bytes = [0; 2048];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(false),
                Ok(read) => self.received.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
            if self.received.ends_with(b"\r\n\r\n") {
                let (served, left) = floor.requested(&String::from_utf8_lossy(&self.received))?;
                self.received.clear();
                // The head leaves with the first bytes.
                send(&self.stream, reply_head(&left).as_bytes(), SendFlags::MORE)?;
                self.reply = Some(Reply { served, left, window: None });
            }
        }
    }
}

impl Reply<'_> {
    fn send_file(&mut self, socket: &TcpStream) -> io::Result<Step> {
        while !self.left.is_empty() {
            let most = within(self.left.end - self.left.start).min(SENT_AT_ONCE_MAX);
            match sendfile(socket, &self.served.file, Some(&mut self.left.start), most) {
                Ok(0) => return Ok(Step::Ended),
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(Step::WouldBlock),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Step::Done)
    }

    fn send_verified(
        &mut self,
        socket: &TcpStream,
        length: usize,
        windows: &mut Windows,
    ) -> io::Result<Step> {
        loop {
            if let Some((window, unsent)) = &mut self.window {
                while unsent.start < unsent.end {
                    match send(socket, &window[unsent.clone()], SendFlags::empty()) {
                        Ok(sent) => unsent.start += sent,
                        Err(rustix::io::Errno::AGAIN) => return Ok(Step::WouldBlock),
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            windows.extend(self.window.take().map(|(window, _)| window));
            if self.left.is_empty() {
                return Ok(Step::Done);
            }
            let mut window = windows.pop().unwrap_or_else(|| vec![0; length]);
            let filled = within(self.left.end - self.left.start).min(length);
            self.served.read_verified(self.left.start, &mut window[..filled])?;
            self.left.start += filled as u64;
            self.window = Some((window, 0..filled));
        }
    }
}
