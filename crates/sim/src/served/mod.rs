//! What stands before the door of an instance, whether it is one of a group or alone: clients and
//! their connections, an observer, and a disk that fails now and then.
//!
//! Reading order: `people` (clients come, ask and hear), `connection` (the same as the instance has
//! it), `content` (of a delivery), `look` and `compare` (what an observer sees, against what was
//! promised), `disk_faults`, `no_view`.
//!
//! Not here: processes; the promises (`history`).

pub(crate) mod compare;
pub(crate) mod connection;
pub(crate) mod content;
pub(crate) mod disk_faults;
pub(crate) mod look;
pub(crate) mod messages;
pub(crate) mod no_view;
pub(crate) mod people;
