//! A status without the group: nothing in a run reads it.

use towline_admin::status::GroupStatus;
use towline_engine::GroupView;

/// See the module.
pub(crate) struct NoView;

impl GroupView for NoView {
    fn group(&self) -> GroupStatus {
        GroupStatus::default()
    }
}
