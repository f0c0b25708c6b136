//! The queue manager: one value that owns all queues, units of work, consumers and definitions.
//!
//! It opens nothing, reads no clock and starts no thread. Deciding calls check and reserve and fill a
//! [`Decision`]; [`QueueManager::apply`] carries facts out and cannot fail;
//! [`QueueManager::dispatch`] hands available messages to consumers.

use towline_types::Time;

use crate::command::*;
use crate::object::Definition;
use crate::record::{RecordError, ReplayError};
use crate::request::*;
use crate::status::{ConnectionStatus, QueueStatus};
use crate::{
    ConnectionId, ConsumerId, Fact, MessageSequence, NewMessage, Outputs, QueueId, Refusal, UnitId,
};

/// See the module's description.
#[derive(Debug)]
pub struct QueueManager {
    limits: Limits,
}

#[allow(unused_variables, missing_docs, clippy::todo, reason = "first commit: signatures only")]
impl QueueManager {
    pub fn new(limits: Limits) -> QueueManager {
        QueueManager { limits }
    }
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
    pub fn refuse_puts(&mut self, reason: Option<Refusal>) {
        todo!()
    }
    pub fn open_put(
        &mut self,
        now: Time,
        connection: ConnectionId,
        name: &str,
        out: &mut Decision,
    ) -> Result<PutTarget, Refusal> {
        todo!()
    }
    pub fn close_put(&mut self, target: &PutTarget) {
        todo!()
    }
    pub fn open_dynamic(
        &mut self,
        now: Time,
        connection: ConnectionId,
        model: &str,
        out: &mut Decision,
    ) -> Result<(String, QueueId), Refusal> {
        todo!()
    }
    pub fn delete_dynamic(
        &mut self,
        now: Time,
        connection: ConnectionId,
        queue: QueueId,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        todo!()
    }
    pub fn put(
        &mut self,
        now: Time,
        target: &PutTarget,
        message: NewMessage,
        unit: Option<UnitId>,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        todo!()
    }
    pub fn open_get(
        &mut self,
        now: Time,
        connection: ConnectionId,
        spec: &ConsumerSpec,
        out: &mut Decision,
    ) -> Result<(ConsumerId, String), Refusal> {
        todo!()
    }
    pub fn set_credit(&mut self, consumer: ConsumerId, credit: u32, drain: bool) {
        todo!()
    }
    pub fn close_get(&mut self, now: Time, consumer: ConsumerId, lost: bool, out: &mut Decision) {
        todo!()
    }
    pub fn settle(
        &mut self,
        now: Time,
        settlement: Settlement,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        todo!()
    }
    pub fn declare(&mut self, now: Time, connection: ConnectionId) -> Result<UnitId, Refusal> {
        todo!()
    }
    pub fn discharge(
        &mut self,
        now: Time,
        connection: ConnectionId,
        unit: UnitId,
        fail: bool,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        todo!()
    }
    pub fn disconnect(
        &mut self,
        now: Time,
        connection: ConnectionId,
        lost: bool,
        out: &mut Decision,
    ) {
        todo!()
    }
    pub fn apply(&mut self, now: Time, fact: Fact, outputs: &mut Outputs) {
        todo!()
    }
    /// true: more to do, call again soon (next_tick says so too)
    pub fn dispatch(
        &mut self,
        now: Time,
        selection: &mut dyn Selection,
        outputs: &mut Outputs,
    ) -> bool {
        todo!()
    }
    pub fn content_arrived(&mut self, queue: QueueId, sequence: MessageSequence) {
        todo!()
    }
    pub fn tick(&mut self, now: Time, outputs: &mut Outputs) {
        todo!()
    }
    pub fn next_tick(&self) -> Time {
        todo!()
    }

    pub fn define_local(
        &mut self,
        now: Time,
        command: &DefineLocal,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        todo!()
    }
    pub fn define_alias(
        &mut self,
        now: Time,
        command: &DefineAlias,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        todo!()
    }
    pub fn define_model(
        &mut self,
        now: Time,
        command: &DefineModel,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        todo!()
    }
    pub fn alter_local(
        &mut self,
        now: Time,
        name: &str,
        changes: &LocalChanges,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        todo!()
    }
    pub fn alter_alias(
        &mut self,
        now: Time,
        name: &str,
        changes: &AliasChanges,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        todo!()
    }
    pub fn alter_model(
        &mut self,
        now: Time,
        name: &str,
        changes: &LocalChanges,
        kind: Option<crate::object::QueueKind>,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        todo!()
    }
    pub fn alter_queue_manager(
        &mut self,
        now: Time,
        changes: &QueueManagerChanges,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        todo!()
    }
    pub fn delete(
        &mut self,
        now: Time,
        name: &str,
        expected: ObjectType,
        purge: bool,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        todo!()
    }
    pub fn clear(&mut self, now: Time, name: &str, out: &mut Decision) -> Result<(), Refusal> {
        todo!()
    }

    pub fn definitions(&self) -> impl Iterator<Item = &Definition> {
        [].into_iter()
    }
    pub fn definition(&self, name: &str) -> Option<&Definition> {
        todo!()
    }
    pub fn queue_status(&self, name: &str, now: Time) -> Option<QueueStatus> {
        todo!()
    }
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        todo!()
    }

    pub fn snapshot(&self) -> Vec<u8> {
        todo!()
    }
    pub fn restore(image: &[u8], limits: Limits) -> Result<QueueManager, RecordError> {
        todo!()
    }
    pub fn replay(
        &mut self,
        fact: Fact,
        before_image: bool,
        outputs: &mut Outputs,
    ) -> Result<(), ReplayError> {
        todo!()
    }
    pub fn replay_end(&mut self, outputs: &mut Outputs) {
        todo!()
    }
    pub fn audit(&self) {
        todo!()
    }
}
