//! What a queue manager must answer so that commands can be carried out on it. The node implements
//! this over the rules; tests implement it over a map.

use towline_core::object::Definition;
use towline_core::{MoveCounts, Refusal};
use towline_types::Time;

use crate::command::{
    AlterAlias, AlterLocal, AlterModel, Clear, DefineAlias, DefineLocal, DefineModel, Delete, Move,
    QueueManagerChanges, StopConnection,
};

/// A queue manager under administration.
///
/// A changing method that returned `Ok` has decided and logged the change; the sender of the reply
/// waits until the log is durable up to there.
pub trait Target {
    /// DISPLAY QMGR.
    fn queue_manager(&self) -> QueueManagerRow;
    /// DISPLAY QUEUE: calls `each` for every definition, in any order, dynamic queues too.
    fn definitions(&self, each: &mut dyn FnMut(DefinitionRow<'_>));
    /// DISPLAY QSTATUS: calls `each` for every local queue, in any order.
    fn queue_status(&self, each: &mut dyn FnMut(QueueStatusRow<'_>));
    /// DISPLAY CONN: calls `each` for every connection, in any order.
    fn connections(&self, each: &mut dyn FnMut(ConnectionRow<'_>));

    /// DISPLAY QSTATUS and CONN with TYPE(HANDLE): calls `each` for every queue that a connection
    /// has open, in any order.
    fn handles(&self, each: &mut dyn FnMut(HandleRow<'_>));

    /// DEFINE QLOCAL.
    ///
    /// # Errors
    /// Among others `AlreadyExists`, `BadName`, `UnknownQueue` (the one named by LIKE).
    fn define_local(&mut self, command: DefineLocal) -> Result<(), Refusal>;
    /// DEFINE QALIAS.
    ///
    /// # Errors
    /// As [`Target::define_local`].
    fn define_alias(&mut self, command: DefineAlias) -> Result<(), Refusal>;
    /// DEFINE QMODEL.
    ///
    /// # Errors
    /// As [`Target::define_local`].
    fn define_model(&mut self, command: DefineModel) -> Result<(), Refusal>;
    /// ALTER QLOCAL.
    ///
    /// # Errors
    /// Among others `UnknownQueue`, `WrongType`.
    fn alter_local(&mut self, command: AlterLocal) -> Result<(), Refusal>;
    /// ALTER QALIAS.
    ///
    /// # Errors
    /// As [`Target::alter_local`].
    fn alter_alias(&mut self, command: AlterAlias) -> Result<(), Refusal>;
    /// ALTER QMODEL.
    ///
    /// # Errors
    /// As [`Target::alter_local`].
    fn alter_model(&mut self, command: AlterModel) -> Result<(), Refusal>;
    /// ALTER QMGR.
    ///
    /// # Errors
    /// When the queue manager cannot keep the change.
    fn alter_queue_manager(&mut self, changes: QueueManagerChanges) -> Result<(), Refusal>;
    /// DELETE. Yields how many damaged messages, which a repair could have restored, go with
    /// it, as far as that is known.
    ///
    /// # Errors
    /// Among others `UnknownQueue`, `WrongType`, `ObjectOpen`, `NotEmpty`.
    fn delete(&mut self, command: Delete) -> Result<u64, Refusal>;
    /// CLEAR QLOCAL. Yields the same.
    ///
    /// # Errors
    /// Among others `UnknownQueue`, `WrongType`, `ObjectOpen`, `Uncommitted`.
    fn clear(&mut self, command: Clear) -> Result<u64, Refusal>;
    /// MOVE QLOCAL.
    ///
    /// # Errors
    /// Among others `UnknownQueue`, `WrongType`, `PutInhibited`, `BadAttribute`.
    fn move_messages(&mut self, command: Move) -> Result<MoveCounts, Refusal>;
    /// STOP CONN. False: there is no such connection.
    fn stop_connection(&mut self, command: StopConnection) -> bool;
}

/// DISPLAY QMGR.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueManagerRow {
    /// QMNAME.
    pub name: String,
    /// DESCR.
    pub description: String,
    /// DEADQ; empty = none.
    pub dead_letter_queue: String,
    /// MAXMSGL in bytes.
    pub message_bytes_max: u64,
    /// MAXUMSGS.
    pub unit_messages_max: u32,
    /// VERSION of the program, such as `0.1.0`.
    pub version: String,
}

/// One object with what DISPLAY adds to its definition.
#[derive(Clone, Copy, Debug)]
pub struct DefinitionRow<'a> {
    /// The object.
    pub definition: &'a Definition,
    /// What a local queue has at this moment; `None` for aliases and models.
    pub usage: Option<Usage>,
    /// CRDATE, CRTIME; `None`: as the definition says.
    pub created_at: Option<Time>,
    /// ALTDATE, ALTTIME; `None`: as the definition says.
    pub altered_at: Option<Time>,
}

/// How much a local queue is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CURDEPTH: messages in it, those of uncommitted gets counted.
    pub depth: u64,
    /// IPPROCS: open consumers and browsers.
    pub consumers: u64,
    /// OPPROCS: open producers.
    pub producers: u64,
}

/// DISPLAY QSTATUS of one local queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueStatusRow<'a> {
    /// QSTATUS: the queue's name.
    pub name: &'a str,
    /// CURDEPTH, IPPROCS, OPPROCS.
    pub usage: Usage,
    /// UNCOM: puts and gets that are not committed or not settled yet.
    pub uncommitted: u64,
    /// MSGAGE: seconds since the oldest message was put; `None` when there is none.
    pub oldest_message_age_s: Option<u64>,
    /// LPUTDATE, LPUTTIME; `None` = never since start.
    pub last_put_at: Option<Time>,
    /// LGETDATE, LGETTIME; `None` = never since start.
    pub last_get_at: Option<Time>,
    /// PUTS since the queue was defined: the image keeps it.
    pub puts: u64,
    /// GETS since the queue was defined: the image keeps it.
    pub gets: u64,
    /// DAMAGED: messages put to it that could not be read, since start.
    pub damaged: u64,
}

/// DISPLAY CONN of one connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionRow<'a> {
    /// CONN: its number.
    pub id: u64,
    /// USERID; empty = anonymous.
    pub user: &'a str,
    /// APPLTAG: the container id that the client gave.
    pub container: &'a str,
    /// CONNAME: where it comes from, such as `127.0.0.1:40112`.
    pub address: &'a str,
    /// SESSIONS that are open.
    pub sessions: u64,
    /// LINKS that are attached.
    pub links: u64,
    /// UNITS of work that are open.
    pub units: u64,
}

/// A queue that a connection has open.
#[derive(Clone, Copy, Debug)]
pub struct HandleRow<'a> {
    /// QUEUE: the local queue, also when it was opened by an alias.
    pub queue: &'a str,
    /// CONN, USERID, APPLTAG, CONNAME.
    pub connection: ConnectionRow<'a>,
    /// INPUT.
    pub input: OpenInput,
    /// BROWSE.
    pub browse: bool,
    /// OUTPUT.
    pub output: bool,
}

/// How a queue is open for input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenInput {
    /// It is not.
    No,
    /// With others.
    Shared,
    /// Alone.
    Exclusive,
}
