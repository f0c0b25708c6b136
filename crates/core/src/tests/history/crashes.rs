//! The step that ends the process and begins anew, from an image and what the log still has.

use std::collections::BTreeMap;

use super::{At, QUEUES, Step, World, threshold};

impl World {
    /// The process dies. Of what was written but not known to be durable, a part is there.
    pub(super) fn crash(&mut self, keep: usize) {
        let undurable = self.rig.log.len() - self.rig.durable;
        let records = self.rig.durable + keep * undurable / 99;
        let image = self.image.as_ref().map(|(bytes, at, _)| (bytes.as_slice(), *at));
        let mut others = vec![self.rig.restart(None, records)];
        let mut again = self.rig.restart(image, records);
        // There is no image within a commit.
        if !self.rig.core.has_parts() {
            let (newest, at) = (self.rig.image(), self.rig.durable);
            others.push(self.rig.restart(Some((&newest, at)), records));
            others.push(self.rig.restart_whole(&newest, at, records));
        }
        let mut known = BTreeMap::new();
        let whole_image = self.image.as_ref().filter(|_| keep.is_multiple_of(2));
        if let Some((image, at, counts)) = whole_image {
            again = self.rig.restart_whole(image, *at, records);
            // It may know backouts that the log lost. The log stays without them: a later restart
            // from that alone does not know them either.
            known.clone_from(counts);
        }
        for (end, effects) in std::mem::take(&mut self.later) {
            if end <= again.log.len() {
                self.happen(effects);
            } else {
                self.undo_deletions(&effects);
            }
        }
        self.clearing = [0; 3];
        self.rows.retain(|_, row| row.persistent && row.at != At::OnItsWay);
        for (id, row) in &mut self.rows {
            row.at = At::Visible;
            row.count = row.durable_count.max(known.get(id).copied().unwrap_or(0));
        }
        if self.image.as_ref().is_some_and(|(_, at, _)| *at > again.log.len()) {
            self.image = None;
        }
        for other in &others {
            assert_eq!(other.shares(), again.shares(), "the same bodies live");
        }
        assert_eq!(again.core.bodies_in_progress().count(), 0, "uncommitted bodies are given back");
        others.iter().for_each(|other| other.core.audit());
        for (queue, name) in QUEUES.iter().enumerate() {
            if again.core.queue_status(name).is_none() {
                again.define_with(name, threshold(queue)).unwrap();
            }
            let wanted: Vec<String> = self.visible(queue).iter().map(u32::to_string).collect();
            assert_eq!(again.browse(name), wanted, "exactly what was durable, in order");
        }
        for other in &mut others {
            super::levels::check_same(&mut again, other);
        }
        again.instant = false;
        self.rig = again;
        self.consumers.clear();
        self.credit.clear();
        self.unsettled.clear();
        self.failed.clear();
        self.refused.clear();
        self.units.clear();
        self.targets = QUEUES.iter().map(|name| self.rig.open_put(name).unwrap()).collect();
    }
}

/// A backout was decided, an image was taken, and the log lost it: a restart from the image counts
/// it, a later one from the log alone does not.
#[test]
fn a_backout_that_only_an_image_has_is_gone_when_the_log_alone_is_read() {
    let mut world = World::new();
    let put = |persistent| Step::Put { queue: 0, persistent, priority: 4, in_unit: false };
    let open = || Step::Open { queue: 0, credit: 1 };
    let begins =
        [put(true), Step::SyncOne, open(), Step::Dispatch, Step::Disconnect { lost: true }];
    for step in begins.into_iter().chain([Step::Image, Step::Crash { keep: 12 }]) {
        world.run(step);
    }
    assert_eq!((world.rows[&0].count, world.rows[&0].durable_count), (1, 0));
    for step in [open(), Step::Dispatch, Step::Crash { keep: 47 }, open(), Step::Dispatch] {
        world.run(step);
    }
    assert_eq!(world.rows[&0].count, 0);
}
