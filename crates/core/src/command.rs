//! DEFINE, ALTER, DELETE and CLEAR as the rules take them. How they are written is `admin`'s job.
//!
//! `None` means: not said. A DEFINE fills what is not said from LIKE, else from the defaults; an
//! ALTER leaves it as it is.

use crate::object::{AliasQueue, DeliverySequence, LocalAttributes, QueueKind};

/// Attributes of a local or model queue that a command sets. See [`LocalAttributes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is documented once, in LocalAttributes")]
pub struct LocalChanges {
    pub description: Option<String>,
    pub depth_max: Option<u64>,
    pub message_bytes_max: Option<u64>,
    pub put_enabled: Option<bool>,
    pub get_enabled: Option<bool>,
    pub default_persistent: Option<bool>,
    pub default_priority: Option<u8>,
    pub sequence: Option<DeliverySequence>,
    pub backout_threshold: Option<u32>,
    pub backout_queue: Option<String>,
    pub shareable: Option<bool>,
    pub default_shared: Option<bool>,
}

impl LocalChanges {
    /// Sets what was said.
    pub(crate) fn apply_to(&self, attributes: &mut LocalAttributes) {
        set(&mut attributes.description, self.description.as_ref());
        set(&mut attributes.depth_max, self.depth_max.as_ref());
        set(&mut attributes.message_bytes_max, self.message_bytes_max.as_ref());
        set(&mut attributes.put_enabled, self.put_enabled.as_ref());
        set(&mut attributes.get_enabled, self.get_enabled.as_ref());
        set(&mut attributes.default_persistent, self.default_persistent.as_ref());
        set(&mut attributes.default_priority, self.default_priority.as_ref());
        set(&mut attributes.sequence, self.sequence.as_ref());
        set(&mut attributes.backout_threshold, self.backout_threshold.as_ref());
        set(&mut attributes.backout_queue, self.backout_queue.as_ref());
        set(&mut attributes.shareable, self.shareable.as_ref());
        set(&mut attributes.default_shared, self.default_shared.as_ref());
    }
}

/// Attributes of an alias that a command sets. See [`AliasQueue`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is documented once, in AliasQueue")]
pub struct AliasChanges {
    pub target: Option<String>,
    pub description: Option<String>,
    pub put_enabled: Option<bool>,
    pub get_enabled: Option<bool>,
    pub default_persistent: Option<bool>,
    pub default_priority: Option<u8>,
}

impl AliasChanges {
    /// Sets what was said.
    pub(crate) fn apply_to(&self, alias: &mut AliasQueue) {
        set(&mut alias.target, self.target.as_ref());
        set(&mut alias.description, self.description.as_ref());
        set(&mut alias.put_enabled, self.put_enabled.as_ref());
        set(&mut alias.get_enabled, self.get_enabled.as_ref());
        set(&mut alias.default_persistent, self.default_persistent.as_ref());
        set(&mut alias.default_priority, self.default_priority.as_ref());
    }
}

/// Attributes of the queue manager that ALTER QMGR sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueManagerChanges {
    /// DESCR, up to 64 characters.
    pub description: Option<String>,
    /// DEADQ; empty: none.
    pub dead_letter_queue: Option<String>,
    /// MAXMSGL in bytes.
    pub message_bytes_max: Option<u64>,
    /// MAXUMSGS.
    pub unit_messages_max: Option<u32>,
}

/// What a DEFINE says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Define<Changes> {
    /// Name of the object.
    pub name: String,
    /// REPLACE: an object of this name and type is set to these attributes and to the defaults for
    /// the rest; its messages stay.
    pub replace: bool,
    /// LIKE: take what is not said from this object, which has the same type.
    pub like: Option<String>,
    /// What is said.
    pub changes: Changes,
}

/// DEFINE QLOCAL.
pub type DefineLocal = Define<LocalChanges>;
/// DEFINE QALIAS.
pub type DefineAlias = Define<AliasChanges>;

/// DEFINE QMODEL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefineModel {
    /// As for a local queue.
    pub define: Define<LocalChanges>,
    /// DEFTYPE; `None`: as LIKE, else TEMPDYN.
    pub kind: Option<QueueKind>,
}

fn set<T: Clone>(field: &mut T, said: Option<&T>) {
    if let Some(value) = said {
        field.clone_from(value);
    }
}
