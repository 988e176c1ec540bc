//! One thread that sends files to many sockets: it waits for all of them at once.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::AsRawFd;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fs::sendfile;

use crate::{Floor, Served, reply_head, within};

/// Most bytes of one call, as nginx's `sendfile_max_chunk`.
const SENT_AT_ONCE_MAX: usize = 2 * 1024 * 1024;
const LISTENER: u64 = 0;

struct Connection<'a> {
    stream: TcpStream,
    received: Vec<u8>,
    /// File and bytes of the reply that are left.
    reply: Option<(&'a Served, Range<u64>)>,
}

/// Serves the files to all that connect.
pub(crate) fn serve(listener: &TcpListener, floor: &Floor) -> io::Result<()> {
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&set, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut connections: HashMap<u64, Connection<'_>> = HashMap::new();
    loop {
        let mut events: Vec<Event> = Vec::with_capacity(64);
        epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in events {
            let number = event.data.u64();
            if number == LISTENER {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let number = u64::try_from(stream.as_raw_fd()).expect("a descriptor is positive");
                let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
                epoll::add(&set, &stream, EventData::new_u64(number), flags)?;
                let connection = Connection { stream, received: Vec::new(), reply: None };
                connections.insert(number, connection);
            } else if let Some(connection) = connections.get_mut(&number)
                && !connection.go_on(floor).unwrap_or(false)
            {
                connections.remove(&number);
            }
        }
    }
}

impl<'a> Connection<'a> {
    /// Sends and receives until the socket would block. False at the end of the connection.
    fn go_on(&mut self, floor: &'a Floor) -> io::Result<bool> {
        loop {
            while let Some((served, left)) =
                self.reply.as_mut().filter(|(_, left)| !left.is_empty())
            {
                let most = within(left.end - left.start).min(SENT_AT_ONCE_MAX);
                match sendfile(&self.stream, &served.file, Some(&mut left.start), most) {
                    Ok(0) => return Ok(false),
                    Ok(_) => {}
                    Err(rustix::io::Errno::AGAIN) => return Ok(true),
                    Err(error) => return Err(error.into()),
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
                let (served, range) = floor.requested(&String::from_utf8_lossy(&self.received))?;
                self.received.clear();
                self.stream.write_all(reply_head(&range).as_bytes())?;
                self.reply = Some((served, range));
            }
        }
    }
}
