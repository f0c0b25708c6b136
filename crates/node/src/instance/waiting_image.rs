//! An image waits until no commit is in parts, and large commits wait for the image: they take
//! turns.
//!
//! An image that is due is tried every few milliseconds, and within a commit each try is refused,
//! so a refusal says nothing about the time: the turn of the image ends two seconds after its
//! begin, and so does that of the commits behind it. But commits that begin in their turn may last
//! until that of the image is over, and then it would never be taken, and no log reclaimed. So each
//! turn of an image is twice as long as the one that it missed.
//!
//! Not here: what an image is (`image`), and the commits (`client_work`).

use std::time::Duration;

use towline_types::Time;

/// For how long an image that could not be taken within a commit goes before further commits at
/// first: it is tried again within a second.
const IMAGE_FIRST: Duration = Duration::from_secs(2);
/// For how long commits begin after that, whether or not the image is tried again.
const COMMITS_FIRST: Duration = IMAGE_FIRST;
/// How often the time of the image is doubled: up to 32 seconds, more than commits take.
const DOUBLINGS_MAX: u32 = 4;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct WaitingImage {
    /// It was refused in this turn, or in that of the commits before it.
    waits: bool,
    /// `None`: there is no turn, or its end is known at the next look at the time.
    ends: Option<Time>,
    /// It is the turn of the commits.
    yields: bool,
    /// Turns of the image that ended before it was taken.
    missed: u32,
}

impl WaitingImage {
    /// It could not be taken now.
    pub(super) fn refused(&mut self) {
        self.waits = true;
    }

    /// It was taken.
    pub(super) fn taken(&mut self) {
        *self = WaitingImage::default();
    }

    /// The clock was set.
    pub(super) fn clock_stepped(&mut self) {
        self.ends = None;
    }

    /// Whether it goes before a commit that would begin now.
    pub(super) fn goes_first(&mut self, now: Time) -> bool {
        if self.yields && *self.ends.get_or_insert(now + COMMITS_FIRST) <= now {
            (self.yields, self.ends) = (false, None);
        }
        if self.yields || !self.waits {
            return false;
        }
        let own = IMAGE_FIRST * 2_u32.pow(self.missed.min(DOUBLINGS_MAX));
        if *self.ends.get_or_insert(now + own) <= now {
            // Unless it is tried again, commits do not wait for it any more.
            let (missed, ends) = (self.missed.saturating_add(1), Some(now + COMMITS_FIRST));
            *self = WaitingImage { waits: false, ends, yields: true, missed };
        }
        self.waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Time = Time(1_000_000_000);

    /// Turns of an image that is tried every 20 milliseconds, and of commits, in milliseconds.
    fn turns(count: usize) -> Vec<u128> {
        let mut image = WaitingImage::default();
        let (mut turns, mut began, mut now, mut first) = (Vec::new(), BEGIN, BEGIN, true);
        while turns.len() < count {
            image.refused();
            if image.goes_first(now) != first {
                turns.push(now.since(began).as_millis());
                (began, first) = (now, !first);
            }
            now = now + Duration::from_millis(20);
        }
        turns
    }

    #[test]
    fn commits_and_an_image_take_turns_and_that_of_the_image_becomes_longer_until_it_is_taken() {
        let commits = COMMITS_FIRST.as_millis();
        let mut expected = Vec::new();
        for image in [2_000, 4_000, 8_000, 16_000, 32_000, 32_000] {
            expected.extend([image, commits]);
        }
        assert_eq!(turns(expected.len()), expected);
    }

    #[test]
    fn an_image_that_is_taken_or_not_tried_again_holds_no_commit() {
        let mut image = WaitingImage::default();
        assert!(!image.goes_first(BEGIN));
        image.refused();
        assert!(image.goes_first(BEGIN));
        image.taken();
        assert!(!image.goes_first(BEGIN));
        image.refused();
        assert!(image.goes_first(BEGIN));
        for seconds in [3, 6, 1_000] {
            assert!(!image.goes_first(BEGIN + Duration::from_secs(seconds)));
        }
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_turn_longer() {
        let mut image = WaitingImage::default();
        image.refused();
        assert!(image.goes_first(BEGIN));
        image.clock_stepped();
        assert!(image.goes_first(Time(1)));
        assert!(!image.goes_first(Time(1) + IMAGE_FIRST));
    }
}
