//! The group: consensus around opaque batches of the recovery log, without I/O.

#![forbid(unsafe_code)]
