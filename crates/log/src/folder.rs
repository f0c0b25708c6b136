//! A log folder at rest: its files by kind, their headers, images, and the chain of batches.
//!
//! Reading order: [`names`], [`table`] (the cases of recovery), [`headers`], `handles` (open
//! files), [`files`], [`images`], [`chain`], `window`, [`scan`].
//!
//! Not here: repair (`recover`), and the threads of a running log. Nothing is written.

pub mod chain;
pub mod files;
pub mod handles;
pub mod headers;
pub mod images;
pub mod names;
pub mod scan;
pub mod table;
pub mod window;
