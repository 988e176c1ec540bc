//! Positions of walks over several devices, as a cursor: `device=extent`, separated by spaces.
//!
//! A lost position costs little: what was repaired before has equal sums, and is not visited again.

use martlet_protocol::{DeviceId, ExtentId};

use crate::cursors::Cursors;

/// Loads the positions under a name; those that are invalid count as none.
pub(crate) fn load_positions(cursors: &dyn Cursors, name: &str) -> Vec<(DeviceId, ExtentId)> {
    let one = |word: &str| {
        let (device, after) = word.split_once('=')?;
        Some((DeviceId(device.parse().ok()?), after.parse().ok()?))
    };
    cursors.load(name).unwrap_or_default().split(' ').filter_map(one).collect()
}

/// Saves positions for [`load_positions`].
pub(crate) fn save_positions(
    cursors: &dyn Cursors,
    name: &str,
    positions: impl Iterator<Item = (DeviceId, ExtentId)>,
) {
    let words: Vec<String> = positions.map(|(id, after)| format!("{}={after}", id.0)).collect();
    cursors.save(name, &words.join(" "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursors::MemoryCursors;

    #[test]
    fn positions_are_loaded_as_they_were_saved_and_others_are_none() {
        let cursors = MemoryCursors::default();
        assert_eq!(load_positions(&cursors, "it"), []);
        let positions = [(DeviceId(3), ExtentId([9; 16])), (DeviceId(70), ExtentId([0xff; 16]))];
        save_positions(&cursors, "it", positions.into_iter());
        assert_eq!(load_positions(&cursors, "it"), positions);
        // Earlier versions saved one device.
        cursors.save("it", &format!("3 {}", ExtentId([9; 16])));
        assert_eq!(load_positions(&cursors, "it"), []);
        save_positions(&cursors, "it", [].into_iter());
        assert_eq!(load_positions(&cursors, "it"), []);
    }
}
