//! Pins: marks that keep a version from being removed while a generation needs it.
//!
//! ```text
//! mark: version (1) | postcard of [(set, generation)]
//! ```
//!
//! A version's mark names each set that needs it, with the latest generation of that set that asked.
//! A removal of the version is refused while the mark is there, by the ballot that removes.
//!
//! Invariant: a pin that a later generation raised is not released by an earlier one.

use martlet_protocol::entry::{Mark, Marks};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Format version.
const VERSION: u8 = 1;
/// Maximum number of sets that share a version.
const SETS_MAX: usize = 64;

/// Short id of a set: the first bytes of the hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SetId([u8; 16]);

impl SetId {
    pub(crate) fn of(set: &str) -> Self {
        let mut id = [0; 16];
        id.copy_from_slice(&blake3::hash(set.as_bytes()).as_bytes()[..16]);
        Self(id)
    }

    /// The id in hexadecimal.
    pub(crate) fn text(self) -> String {
        hex::encode(self.0)
    }
}

/// A generation's need of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pin {
    pub(crate) set: SetId,
    pub(crate) generation: u64,
}

fn pins_of(marks: &Marks) -> Result<Vec<Pin>> {
    let Some(document) = marks.get(Mark::Checkpoint) else { return Ok(Vec::new()) };
    let pins = match document.split_first() {
        Some((&VERSION, rest)) => postcard::from_bytes(rest).ok(),
        _ => None,
    };
    pins.ok_or_else(|| {
        Error::Backend(martlet_protocol::Error::corrupt("the pins of a version can't be decoded"))
    })
}

fn write(marks: &mut Marks, pins: &[Pin]) {
    if pins.is_empty() {
        marks.remove(Mark::Checkpoint);
        return;
    }
    let document = postcard::to_extend(pins, vec![VERSION]).expect("pins in memory can be encoded");
    marks.set(Mark::Checkpoint, document);
}

/// Adds a pin, or raises that of its set.
///
/// # Errors
/// Too many sets share the version; its pins can't be decoded.
pub(crate) fn pin(marks: &mut Marks, pin: Pin) -> Result<()> {
    let mut pins = pins_of(marks)?;
    let is_full = pins.len() == SETS_MAX;
    match pins.iter_mut().find(|it| it.set == pin.set) {
        Some(held) => held.generation = held.generation.max(pin.generation),
        None if is_full => {
            let message = format!("more than {SETS_MAX} sets share a version");
            return Err(Error::InvalidRequest(message));
        }
        None => pins.push(pin),
    }
    write(marks, &pins);
    Ok(())
}

/// Removes the pin of a set, unless a later generation than `pin` raised it. If another generation
/// of the set still needs the version, the pin is lowered to that of `still_needed_by`.
///
/// # Errors
/// The version's pins can't be decoded: they stay.
pub(crate) fn unpin(marks: &mut Marks, pin: Pin, still_needed_by: Option<u64>) -> Result<()> {
    let mut pins = pins_of(marks)?;
    for held in pins.iter_mut().filter(|it| it.set == pin.set && it.generation <= pin.generation) {
        // A step that is late may name a generation that needed the version once.
        held.generation = held.generation.min(still_needed_by.unwrap_or_default());
    }
    pins.retain(|it| it.generation > 0);
    write(marks, &pins);
    Ok(())
}

/// Returns true if [`unpin`] would change the pins.
///
/// # Errors
/// As [`unpin`].
pub(crate) fn is_held(marks: &Marks, pin: Pin, still_needed_by: Option<u64>) -> Result<bool> {
    let mut unpinned = marks.clone();
    unpin(&mut unpinned, pin, still_needed_by)?;
    Ok(unpinned != *marks)
}

#[cfg(test)]
mod tests {
    use martlet_protocol::lock::{Bypass, LockViolation, check_removal};

    use super::*;

    fn of(set: &str, generation: u64) -> Pin {
        Pin { set: SetId::of(set), generation }
    }

    #[test]
    fn a_pinned_version_stays_until_every_set_lets_go() {
        let mut marks = Marks::default();
        pin(&mut marks, of("a/", 1)).unwrap();
        pin(&mut marks, of("b/", 4)).unwrap();
        let may_go = |marks: &Marks| check_removal(marks, 0, Bypass::Governance);
        assert_eq!(may_go(&marks), Err(LockViolation::Pinned));
        unpin(&mut marks, of("a/", 1), None).unwrap();
        assert_eq!(may_go(&marks), Err(LockViolation::Pinned));
        unpin(&mut marks, of("b/", 4), None).unwrap();
        assert_eq!(may_go(&marks), Ok(()));
        assert!(marks.is_empty());
        unpin(&mut marks, of("b/", 4), None).unwrap();
    }

    #[test]
    fn a_later_generation_holds_against_an_earlier_one() {
        let mut marks = Marks::default();
        pin(&mut marks, of("a/", 2)).unwrap();
        pin(&mut marks, of("a/", 1)).unwrap();
        unpin(&mut marks, of("a/", 1), None).unwrap();
        assert_eq!(pins_of(&marks).unwrap(), [of("a/", 2)]);
        unpin(&mut marks, of("a/", 3), None).unwrap();
        assert!(marks.is_empty());
    }

    #[test]
    fn an_earlier_generation_may_still_need_the_version() {
        let mut marks = Marks::default();
        pin(&mut marks, of("a/", 5)).unwrap();
        assert!(!is_held(&marks, of("a/", 4), Some(3)).unwrap(), "a later pin");
        assert!(!is_held(&marks, of("b/", 5), None).unwrap());
        assert!(is_held(&marks, of("a/", 5), Some(3)).unwrap());
        unpin(&mut marks, of("a/", 5), Some(3)).unwrap();
        assert_eq!(pins_of(&marks).unwrap(), [of("a/", 3)]);
        assert!(!is_held(&marks, of("a/", 5), Some(3)).unwrap());
        unpin(&mut marks, of("a/", 3), None).unwrap();
        assert!(marks.is_empty());
    }

    #[test]
    fn a_late_step_raises_no_pin() {
        let mut marks = Marks::default();
        pin(&mut marks, of("a/", 1)).unwrap();
        unpin(&mut marks, of("a/", 5), Some(3)).unwrap();
        assert_eq!(pins_of(&marks).unwrap(), [of("a/", 1)], "generation 3 may be gone");
    }

    #[test]
    fn damaged_pins_stay_and_the_number_is_bounded() {
        let mut marks = Marks::default();
        marks.set(Mark::Checkpoint, vec![9, 9]);
        assert!(
            pin(&mut marks, of("a/", 1)).is_err() && unpin(&mut marks, of("a/", 1), None).is_err()
        );
        assert_eq!(marks.get(Mark::Checkpoint), Some(&[9, 9][..]));
        let mut marks = Marks::default();
        for at in 0..SETS_MAX {
            pin(&mut marks, of(&at.to_string(), 1)).unwrap();
        }
        assert!(pin(&mut marks, of("one more", 1)).is_err());
        pin(&mut marks, of("3", 2)).unwrap();
    }
}
