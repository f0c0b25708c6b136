//! Which images are on disk, and which part of the log they and the live bodies need.
//!
//! Not here: writing images (`image`), releasing extents (`reclaim`), the figures (`stats`).

use towline_types::Lsn;

/// An image on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ImagePlace {
    pub(crate) at: Lsn,
    /// The log is needed from the extent of this byte on.
    pub(crate) needs: Lsn,
}

/// Which part of the log is needed, and how much of it was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needs {
    /// Positions of the images, oldest first.
    pub(crate) images: Vec<Lsn>,
    /// A start reads from here on.
    pub(crate) restart_from: Lsn,
    /// What the kept images need begins here.
    images_from: Lsn,
    /// The node needs bodies from here on, as far as it said.
    keep_from: Lsn,
    /// Bytes that were needed lately: the most, fading.
    pub(crate) workload_bytes: u64,
}

impl Needs {
    /// It is not yet known what is needed of a log that begins at `first`.
    pub(crate) fn new(first: Lsn, images: &[ImagePlace]) -> Needs {
        let mut needs = Needs { keep_from: first, ..Needs::default() };
        needs.enter_images(first, images);
        needs
    }

    /// The images on disk changed.
    pub(crate) fn enter_images(&mut self, first: Lsn, images: &[ImagePlace]) {
        self.images = images.iter().map(|image| image.at).collect();
        self.restart_from = images.last().map_or(first, |image| image.needs);
        self.images_from = images.iter().map(|image| image.needs).min().unwrap_or(first);
    }

    /// The node said what it needs, at a moment at which the log ends at `tail`.
    pub(crate) fn enter_keep(&mut self, keep_from: Lsn, tail: Lsn) {
        let bytes = self.media_bytes(tail);
        self.workload_bytes = bytes.max((self.workload_bytes / 8).saturating_mul(7));
        self.keep_from = keep_from;
    }

    /// Where the log begins that images or bodies need.
    pub(crate) fn from(&self) -> Lsn {
        self.keep_from.min(self.images_from)
    }

    pub(crate) fn media_bytes(&self, tail: Lsn) -> u64 {
        tail.0.saturating_sub(self.from().0)
    }
}
