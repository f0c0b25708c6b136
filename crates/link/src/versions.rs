//! The protocol version that two ends speak: the newest one that both know.
//!
//! Not here: what a version means; each hello has its own.

use std::ops::RangeInclusive;

/// The version to speak with an end of program version `build` that knows `theirs`, oldest and
/// newest, of a protocol in which this program knows `ours`.
///
/// # Errors
/// When there is none; `protocol` names it in the text, and `build`, which is what a peer says, has
/// no control characters there.
pub(super) fn common(
    protocol: &str,
    build: &str,
    theirs: [u16; 2],
    ours: &RangeInclusive<u16>,
) -> Result<u16, String> {
    let [oldest, newest] = theirs;
    let common = newest.min(*ours.end());
    if common >= oldest.max(*ours.start()) {
        return Ok(common);
    }
    let (build, start, end) = (build.escape_default(), ours.start(), ours.end());
    Err(format!(
        "no common version of the {protocol}: {build} has {oldest} to {newest}, we have {start} to \
         {end}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_that_both_know_is_spoken() {
        let with = |theirs| common("link protocol", "1.0", theirs, &(2..=4)).ok();
        assert_eq!([with([1, 2]), with([2, 3]), with([3, 9])], [Some(2), Some(3), Some(4)]);
        assert_eq!([with([0, 1]), with([5, 9]), with([3, 2])], [None; 3]);
    }

    #[test]
    fn what_a_peer_calls_its_build_breaks_no_line_of_a_log() {
        let why = common("link protocol", "1\n2", [7, 9], &(2..=3)).unwrap_err();
        let text = "no common version of the link protocol: 1\\n2 has 7 to 9, we have 2 to 3";
        assert_eq!(why, text);
    }
}
