//! What an instance of a group adds to the control socket of its process: its group, a switch, a
//! re-exec, and the objection to a stop that would leave the group without a quorum.
//!
//! Not here: the socket itself (`crate::control`), the switch (`switch`).

use std::sync::Arc;

use serde_json::Value;
use towline_admin::status::GroupStatus;
use towline_engine::GroupView;
use towline_link::Peer;
use towline_replication::driver::Driver;

use super::region_orders::RegionOrders;
use super::rehearsals::Rehearsals;
use super::switch;
use crate::control::{
    Afterwards, Beside, ControlledInstance, InstanceReport, RegionOrder, RehearsalOrder,
};
use towline_replica::OpenReplica;

/// An instance of a group that answers on its control socket.
pub(super) struct GroupControl {
    pub(crate) driver: Arc<Driver>,
    pub(crate) opened: Arc<OpenReplica>,
    pub(crate) view: Arc<dyn GroupView>,
    pub(super) region: Arc<RegionOrders>,
    pub(super) rehearsals: Rehearsals,
}

impl ControlledInstance for GroupControl {
    fn report(&self) -> InstanceReport {
        // An instance that lost leadership has a door until it re-executes.
        let door = self.opened.door().filter(|_| self.driver.leads());
        let status = door.map(|door| door.status());
        InstanceReport { group: Some(self.view.group()), status }
    }

    fn objection_to_stop(&self) -> Option<String> {
        breaks_quorum(&self.view.group(), self.driver.this())
    }

    fn switch(&self, to: Option<&str>) -> Result<Value, String> {
        switch::switch(&self.driver, self.view.as_ref(), to)
    }

    fn region_switch(&self, order: &RegionOrder) -> Result<(Value, Option<Afterwards>), String> {
        self.region.switch(order)
    }

    fn region_failover(&self, order: &RegionOrder) -> Result<Value, String> {
        self.region.fail_over(order)
    }

    fn region_rejoin(&self, order: &RegionOrder) -> Result<(Value, Option<Afterwards>), String> {
        self.region.rejoin(order)
    }

    fn region_fence(&self, order: &RegionOrder, is_on: bool) -> Result<Value, String> {
        self.region.fence(order, is_on)
    }

    fn region_report(&self, report: Value) -> Result<Value, String> {
        self.region.report(report)
    }

    fn region_alone(&self, order: &RegionOrder) -> Result<Value, String> {
        self.region.go_alone(order)
    }

    fn region_rehearse(&self, order: &RehearsalOrder) -> Result<(Value, Beside), String> {
        self.rehearsals.begin(order)
    }

    fn can_restart(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Whether the group could not go on without the instance at this position. Positions, not names:
/// the one that stops must not count itself among those that are left.
fn breaks_quorum(group: &GroupStatus, this: Peer) -> Option<String> {
    let others = group.instances.iter().enumerate().filter(|(peer, _)| *peer != this);
    let left = others.filter(|(_, row)| row.connected_here).count();
    let all = group.instances.len();
    if all == 1 {
        // A group that is stopped on purpose, as a queue manager without a group is.
        return None;
    }
    if left == 0 {
        return Some(format!(
            "'{}' is connected to no other instance, so it cannot know whether the group goes on \
             without it; --force stops it all the same",
            group.instance
        ));
    }
    let what = match group.group_role.as_str() {
        "recovery" => "take no more of the live group's log",
        _ => "serve no client",
    };
    (left < all / 2 + 1).then(|| {
        format!(
            "stopping '{}' would leave {left} of {all} instances, and the group would {what}; \
             --force stops it all the same",
            group.instance
        )
    })
}

#[cfg(test)]
mod tests {
    use towline_admin::status::InstanceStatus;

    use super::*;

    #[test]
    fn who_stops_does_not_count_itself_among_those_that_are_left() {
        let row = |connected_here| InstanceStatus { connected_here, ..InstanceStatus::default() };
        // Nothing has a name, so that names could tell nothing apart.
        let group = |rows: [bool; 3]| GroupStatus {
            instances: rows.map(row).to_vec(),
            ..GroupStatus::default()
        };
        let why = breaks_quorum(&group([true, true, false]), 0).unwrap();
        assert!(why.contains("would leave 1 of 3") && why.contains("serve no client"), "{why}");
        let group_role = "recovery".to_owned();
        let recovery = GroupStatus { group_role, ..group([true, true, false]) };
        let why = breaks_quorum(&recovery, 0).unwrap();
        assert!(why.contains("take no more of the live group's log"), "it serves none: {why}");
        assert_eq!(breaks_quorum(&group([true, true, true]), 2), None);
        let why = breaks_quorum(&group([true, false, false]), 0).unwrap();
        assert!(why.contains("cannot know"), "the others may serve without it: {why}");
        let alone = GroupStatus { instances: vec![row(true)], ..GroupStatus::default() };
        assert_eq!(breaks_quorum(&alone, 0), None, "there is no group beside it");
    }
}
