//! Kinds of errors by errno values of file calls.

use martlet_protocol::{Error, ErrorKind};
use rustix::io::Errno;

/// Maps an errno to an error kind, with a message that names the call.
pub(super) fn failed(call: &str, name: &str, errno: Errno) -> Error {
    let kind = match errno {
        Errno::NOSPC | Errno::DQUOT => ErrorKind::Full,
        Errno::NOENT | Errno::NOTDIR => ErrorKind::NotFound,
        Errno::EXIST => ErrorKind::Conflict,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => ErrorKind::Unavailable,
        _ => ErrorKind::Internal,
    };
    Error::new(kind, format!("can't {call} {name}")).with_source(std::io::Error::from(errno))
}
