//! Traits of the crates below that are answered with types of other crates below: this crate is the
//! first that knows both sides.
//!
//! Not here: decisions. Each method is one call.

use std::sync::Arc;

use towline_engine::{Door, RepairDone, Repairs};
use towline_log::{Listener, Space};
use towline_node::Farewell;
use towline_replication::active_instance::ActiveInstance;
use towline_replication::repair_queue::RepairQueue;
use towline_types::{BodyLocation, LevelRaise, Lsn};

/// The door of this instance, as its part in the group needs it.
pub(crate) struct ActiveDoor(pub(crate) Arc<Door>);

impl ActiveInstance for ActiveDoor {
    fn committed(&self, upto: Lsn) {
        self.0.durable(upto);
    }

    fn space(&self, space: Space) {
        Listener::space(self.0.as_ref(), space);
    }

    fn written(&self) {
        self.0.written();
    }

    fn caught_up(&self) {
        Listener::caught_up(self.0.as_ref());
    }

    fn close_clients(&self) {
        self.0.end(Farewell::HandsOver);
    }

    fn fence(&self, why: &str) {
        self.0.fence(why);
    }

    fn lift_fence(&self) {
        self.0.lift_fence();
    }

    fn is_still(&self) -> bool {
        self.0.look(|instance| instance.is_closed() && instance.runs_pending() == 0)
    }

    fn runs_pending(&self) -> usize {
        self.0.look(|instance| instance.runs_pending())
    }

    fn raise_format_level(&self, to: u8) -> LevelRaise {
        self.0.raise_format_level(to)
    }

    fn hold_still(&self, act: &mut dyn FnMut() -> bool) -> bool {
        self.0.hold_still(act)
    }
}

/// The repairs of a group, as the door needs them.
pub(crate) struct GroupRepairs(pub(crate) Arc<RepairQueue>);

impl Repairs for GroupRepairs {
    fn request(&self, parts: Vec<BodyLocation>, done: RepairDone) {
        self.0.ask(parts, done);
    }

    fn wait_for(&self, parts: Vec<BodyLocation>) -> bool {
        self.0.wait_for(parts)
    }
}
