//! Commands carried out on a [`Target`], one by one or as a script.

use towline_core::Refusal;

use crate::catalogue::{self, Entry, Message};
use crate::command::{Command, Display, NamePattern, Subject};
use crate::display;
use crate::mqsc::{self, Reader, Statement};
use crate::reply::{Outcome, Reply, ScriptReply};
use crate::target::Target;

/// Carries out one command. [`Reply::command`] stays empty: only the caller knows the text.
pub fn execute(target: &mut dyn Target, command: Command) -> Reply {
    match command {
        Command::DefineLocal(define) => {
            let name = define.name.clone();
            changed(&catalogue::QUEUE_CREATED, &name, target.define_local(define))
        }
        Command::DefineAlias(define) => {
            let name = define.name.clone();
            changed(&catalogue::QUEUE_CREATED, &name, target.define_alias(define))
        }
        Command::DefineModel(define) => {
            let name = define.define.name.clone();
            changed(&catalogue::QUEUE_CREATED, &name, target.define_model(define))
        }
        Command::AlterLocal(alter) => {
            let name = alter.name.clone();
            changed(&catalogue::QUEUE_CHANGED, &name, target.alter_local(alter))
        }
        Command::AlterAlias(alter) => {
            let name = alter.name.clone();
            changed(&catalogue::QUEUE_CHANGED, &name, target.alter_alias(alter))
        }
        Command::AlterModel(alter) => {
            let name = alter.name.clone();
            changed(&catalogue::QUEUE_CHANGED, &name, target.alter_model(alter))
        }
        Command::AlterQueueManager(changes) => {
            let name = target.queue_manager().name;
            let result = target.alter_queue_manager(changes);
            changed(&catalogue::QUEUE_MANAGER_CHANGED, &name, result)
        }
        Command::Delete(delete) => {
            let name = delete.name.clone();
            removed(&catalogue::QUEUE_DELETED, &name, target.delete(delete))
        }
        Command::Clear(clear) => {
            let name = clear.name.clone();
            removed(&catalogue::QUEUE_CLEARED, &name, target.clear(clear))
        }
        Command::Move(order) => {
            let from = order.name.clone();
            let to = order.to.clone();
            match target.move_messages(order) {
                Ok(counts) => {
                    let [moved, left] = [counts.moved, counts.left].map(|count| count.to_string());
                    let message = catalogue::MESSAGES_MOVED.message(&[&moved, &from, &to, &left]);
                    reply(Outcome::Done, vec![message])
                }
                Err(refusal) => reply(Outcome::Failed, vec![catalogue::of_refusal(&refusal)]),
            }
        }
        Command::StopConnection(stop) => {
            let id = stop.id.to_string();
            let there = target.stop_connection(stop);
            match there {
                true => reply(Outcome::Done, vec![catalogue::CONNECTION_STOPPED.message(&[&id])]),
                false => {
                    reply(Outcome::Failed, vec![catalogue::CONNECTION_UNKNOWN.message(&[&id])])
                }
            }
        }
        Command::Display(display) => shown(target, &display),
        Command::End => reply(Outcome::Done, Vec::new()),
    }
}

/// Reads and carries out one statement.
pub fn execute_statement(target: &mut dyn Target, statement: &Statement) -> Reply {
    let parsed = mqsc::parse(statement);
    Reply { command: statement.text().into(), ..carried_out(target, parsed) }
}

fn carried_out(target: &mut dyn Target, parsed: Result<Command, mqsc::SyntaxError>) -> Reply {
    match parsed {
        Ok(command) => execute(target, command),
        Err(error) => {
            let place = [error.line.to_string(), error.column.to_string()];
            let message = catalogue::SYNTAX_ERROR.message(&[&place[0], &place[1], &error.message]);
            reply(Outcome::SyntaxError, vec![message])
        }
    }
}

/// Carries out a script up to its end or to END. A command that fails does not stop it, as in
/// runmqsc. A script longer than [`mqsc::SCRIPT_BYTES_MAX`] is refused whole.
pub fn run_script(target: &mut dyn Target, text: &str) -> ScriptReply {
    let mut script = ScriptReply {
        replies: Vec::new(),
        read: 0,
        syntax_errors: 0,
        failed: 0,
        ended: false,
        summary: catalogue::SUMMARY.message(&["0", "0", "0"]),
    };
    if text.len() > mqsc::SCRIPT_BYTES_MAX {
        let limit = mqsc::SCRIPT_BYTES_MAX.to_string();
        let message = catalogue::SCRIPT_TOO_LONG.message(&[&limit]);
        script.replies.push(reply(Outcome::Failed, vec![message]));
        script.failed = 1;
    } else {
        for statement in Reader::all(text) {
            let parsed = mqsc::parse(&statement);
            if parsed == Ok(Command::End) {
                script.ended = true;
                break;
            }
            script.read += 1;
            let reply = carried_out(target, parsed);
            match reply.outcome {
                Outcome::Done => {}
                Outcome::Failed => script.failed += 1,
                Outcome::SyntaxError => script.syntax_errors += 1,
            }
            script.replies.push(Reply { command: statement.text().into(), ..reply });
        }
    }
    let counts = [script.read, script.syntax_errors, script.failed].map(|count| count.to_string());
    script.summary = catalogue::SUMMARY.message(&[&counts[0], &counts[1], &counts[2]]);
    script
}

fn reply(outcome: Outcome, messages: Vec<Message>) -> Reply {
    Reply { command: String::new(), outcome, messages, rows: Vec::new() }
}

/// The reply to a command that changes something.
fn changed(entry: &Entry, name: &str, result: Result<(), Refusal>) -> Reply {
    match result {
        Ok(()) => reply(Outcome::Done, vec![entry.message(&[name])]),
        Err(refusal) => reply(Outcome::Failed, vec![catalogue::of_refusal(&refusal)]),
    }
}

/// The reply to a command that removes messages, so many damaged ones among them.
fn removed(entry: &Entry, name: &str, result: Result<u64, Refusal>) -> Reply {
    let damaged = result.as_ref().copied().unwrap_or_default();
    let mut reply = changed(entry, name, result.map(drop));
    if damaged > 0 {
        let message = catalogue::DAMAGED_DROPPED.message(&[&damaged.to_string(), name]);
        reply.messages.push(message);
    }
    reply
}

fn shown(target: &dyn Target, display: &Display) -> Reply {
    let mut rows = display::rows(target, display);
    if rows.is_empty() {
        return match &display.name {
            NamePattern::Exactly(name)
                if display.condition.is_none() && !display::is_there(target, display) =>
            {
                reply(Outcome::Failed, vec![catalogue::NOT_FOUND.message(&[name])])
            }
            NamePattern::Exactly(_) | NamePattern::StartsWith(_) => {
                reply(Outcome::Done, vec![catalogue::NOTHING_MATCHES.message(&[])])
            }
        };
    }
    assert!(display.subject != Subject::QueueManager || rows.len() == 1, "there is one of them");
    let mut messages = Vec::new();
    if rows.len() > display::ROWS_MAX {
        rows.truncate(display::ROWS_MAX);
        messages.push(catalogue::TOO_MANY_ROWS.message(&[&display::ROWS_MAX.to_string()]));
    }
    Reply { rows, ..reply(Outcome::Done, messages) }
}

#[cfg(test)]
mod tests;
