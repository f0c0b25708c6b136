//! A short load in which everything happens that touches files. It is repeated with a crash before
//! and after each operation of the file system.

use super::{Alone, AloneEvent, AlonePhase};

/// What happens in a script.
#[derive(Clone, Copy, Debug)]
pub(super) enum ScriptStep {
    Image,
    Backup,
    /// An end in order.
    Stop,
    Rebuild,
    Kill,
}

/// When, in parts of a hundred of the load.
const STEPS: &[(u64, ScriptStep)] = &[
    (20, ScriptStep::Image),
    (30, ScriptStep::Backup),
    (40, ScriptStep::Stop),
    (55, ScriptStep::Backup),
    (60, ScriptStep::Kill),
    (72, ScriptStep::Rebuild),
    (84, ScriptStep::Image),
    (90, ScriptStep::Backup),
];

impl Alone {
    pub(super) fn plan_script(&mut self) {
        if self.plan.script.is_some() {
            for (part, step) in STEPS {
                self.plan_in(self.plan.base.safety_us * part / 100, AloneEvent::Step(*step));
            }
        }
    }

    pub(super) fn script_step(&mut self, step: ScriptStep) {
        if self.phase != AlonePhase::Safety {
            return;
        }
        self.tell(format_args!("STEP {step:?}"));
        let active = self.active().map(|(node, ..)| node);
        match (step, active) {
            (ScriptStep::Image, _) => self.image(),
            (ScriptStep::Backup, _) => self.backup(),
            (ScriptStep::Stop, Some(node)) => self.stop(node),
            (ScriptStep::Kill, Some(node)) => self.kill(node),
            (ScriptStep::Rebuild, _) => self.rebuild(),
            (ScriptStep::Stop | ScriptStep::Kill, None) => {}
        }
    }
}
