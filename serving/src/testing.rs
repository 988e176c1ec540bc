//! Captured log lines, for tests.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::fmt::format::JsonFields;

use crate::logging::RequestIdFormat;

/// Log lines written so far.
#[derive(Clone, Default)]
pub struct CapturedLines(Arc<Mutex<Vec<u8>>>);

impl CapturedLines {
    /// Returns the lines as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

impl io::Write for CapturedLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Captures log lines as JSON, at the level debug and above.
pub fn json_lines() -> (CapturedLines, tracing::subscriber::DefaultGuard) {
    let lines = CapturedLines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(move || writer.clone())
        .fmt_fields(JsonFields::new())
        .event_format(RequestIdFormat::json())
        .finish();
    (lines, tracing::subscriber::set_default(subscriber))
}
