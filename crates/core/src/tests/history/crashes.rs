//! The step that ends the process and begins anew, from an image and what the log still has.

use super::{At, QUEUES, World, threshold};

impl World {
    /// The process dies. Of what was written but not known to be durable, a part is there.
    pub(super) fn crash(&mut self, keep: usize) {
        let undurable = self.rig.log.len() - self.rig.durable;
        let records = self.rig.durable + keep * undurable / 99;
        let image = self.image.as_ref().map(|(bytes, at, _)| (bytes.as_slice(), *at));
        let mut full = self.rig.restart(None, records);
        let mut again = self.rig.restart(image, records);
        let (newest, at) = (self.rig.image(), self.rig.durable);
        let mut late = self.rig.restart(Some((&newest, at)), records);
        let mut whole = self.rig.restart_whole(&newest, at, records);
        let whole_image = self.image.as_ref().filter(|_| keep.is_multiple_of(2));
        if let Some((image, at, counts)) = whole_image {
            again = self.rig.restart_whole(image, *at, records);
            for (id, row) in &mut self.rows {
                let known = counts.get(id).copied().unwrap_or(0);
                row.durable_count = row.durable_count.max(known);
            }
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
        for row in self.rows.values_mut() {
            row.at = At::Visible;
            row.count = row.durable_count;
        }
        if self.image.as_ref().is_some_and(|(_, at, _)| *at > again.log.len()) {
            self.image = None;
        }
        for other in [&full, &late, &whole] {
            assert_eq!(other.shares(), again.shares(), "the same bodies live");
        }
        assert_eq!(again.core.bodies_in_progress().count(), 0, "uncommitted bodies are given back");
        late.core.audit();
        whole.core.audit();
        full.core.audit();
        for (queue, name) in QUEUES.iter().enumerate() {
            if again.core.queue_status(name).is_none() {
                again.define_with(name, threshold(queue)).unwrap();
            }
            let wanted: Vec<String> = self.visible(queue).iter().map(u32::to_string).collect();
            assert_eq!(again.browse(name), wanted, "exactly what was durable, in order");
        }
        for other in [&mut full, &mut late, &mut whole] {
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
