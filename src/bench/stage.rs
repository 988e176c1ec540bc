//! Progress of the preparation and the cleanup of a run.

use std::sync::Mutex;

use crate::progress::CountedWork;

/// Objects of a stage, written or deleted by several connections.
pub(super) struct StageProgress {
    shown: Mutex<ShownStage>,
    verb: &'static str,
    total: u64,
}

struct ShownStage {
    work: CountedWork,
    done: u64,
}

impl StageProgress {
    /// Begins a stage of so many objects. `verb` tells what happens to them: `written`, `deleted`.
    pub(super) fn begin(verb: &'static str, total: u64, json: bool) -> Self {
        let work = CountedWork::begin("bench", json);
        Self { shown: Mutex::new(ShownStage { work, done: 0 }), verb, total }
    }

    /// Adds objects that are done.
    pub(super) fn advance(&self, objects: u64) {
        // A display that a panicking thread has left is not needed any more.
        let Ok(mut shown) = self.shown.lock() else { return };
        shown.done += objects;
        let (done, text) = (shown.done, self.text(shown.done));
        shown.work.show(&text, "objects", done, Some(self.total));
    }

    fn text(&self, done: u64) -> String {
        format!("{done} of {} objects {}", self.total, self.verb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_add_to_one_number() {
        let stage = StageProgress::begin("written", 10, true);
        stage.advance(3);
        stage.advance(4);
        let done = stage.shown.lock().unwrap().done;
        assert_eq!((done, stage.text(done).as_str()), (7, "7 of 10 objects written"));
    }
}
