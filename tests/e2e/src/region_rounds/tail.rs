//! What a fail-over may lose: what the log of the old live group has behind the fork, as it lists
//! it, beside what the fail-over said before it asked.
//!
//! Not here: the fail-over. Invariants: a message is excused only by its own row, and a row only
//! when the positions and times are those that were announced.

use std::collections::HashSet;

use serde_json::Value;

use crate::history::{Contents, Fate, History, Id, Queue, Unit};
use crate::{Try, fail, require};

/// How the protocol shows a message id that is a text.
const ID_PREFIX: &str = "ID:AMQP_NO_PREFIX:";
/// Between a commit at live and the moment from which recovery says that it has not heard.
const HEARD_SLACK_MS: u64 = 2_000;

/// What a fail-over said before it asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossNotice {
    /// The log that is kept ends there.
    pub kept: u64,
    /// Live was known to have log up to here.
    pub live: u64,
    /// Whether that was known.
    pub is_known: bool,
    /// Wall clock, milliseconds, at which that was heard.
    pub heard_at_ms: u64,
}

impl LossNotice {
    /// Reads the answer to a dry run that came at `now_ms`.
    ///
    /// # Errors
    /// When something is missing in it.
    pub fn read(outlook: &Value, now_ms: u64) -> Try<LossNotice> {
        let loss = &outlook["loss"];
        let heard = loss["heard_ms"].as_u64().ok_or("no heard_ms")?;
        Ok(LossNotice {
            kept: lsn(&loss["kept_lsn"])?,
            live: lsn(&loss["live_lsn"])?,
            is_known: loss["is_known"] == true,
            heard_at_ms: now_ms.saturating_sub(heard),
        })
    }
}

/// Reads `<a:b:c:d>`.
///
/// # Errors
/// When it is no position.
pub fn lsn(text: &Value) -> Try<u64> {
    let text = text.as_str().ok_or("no position")?;
    let words = text.trim_start_matches('<').trim_end_matches('>').split(':');
    let mut lsn = 0;
    for word in words {
        lsn = lsn << 16 | u64::from(word.parse::<u16>()?);
    }
    Ok(lsn)
}

/// What the old live group lists behind the fork.
#[derive(Debug, Default)]
pub struct Tail {
    /// Messages put there, whether or not they were removed there too.
    pub put: HashSet<(Queue, Id)>,
    /// Messages that were there at the fork, and that the tail removed.
    pub removed: HashSet<(Queue, Id)>,
    /// Bytes of log.
    pub bytes: u64,
}

impl Tail {
    /// Reads the lines of `region divergence --json`, and compares them with what was announced.
    ///
    /// # Errors
    /// A row that was not announced, or has no id.
    pub fn read(said: &str, announced: &LossNotice) -> Try<Tail> {
        let mut tail = Tail::default();
        let rows = said.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        let (summary, rows) = rows.split_last().ok_or("nothing was said")?;
        require!(summary["kind"] == "summary", "{summary}");
        let fork = lsn(&summary["fork_lsn"])?;
        require!(
            fork >= announced.kept,
            "less was kept than was announced: the fork is at {fork}, announced {}",
            announced.kept
        );
        tail.bytes = summary["tail_bytes"].as_u64().ok_or("no tail_bytes")?;
        for row in rows {
            tail.enter(row, fork, announced)?;
        }
        Ok(tail)
    }

    fn enter(&mut self, row: &Value, fork: u64, announced: &LossNotice) -> Try {
        let Some(queue) = Queue::ALL.into_iter().find(|queue| row["queue"] == queue.name()) else {
            // What a round leaves to say that it was drained.
            return Ok(());
        };
        let id =
            row["message_id"].as_str().and_then(|id| Id::read(id.trim_start_matches(ID_PREFIX)));
        let id = id.ok_or_else(|| format!("a message of the tail without an id: {row}"))?;
        match row["change"].as_str() {
            Some("added" | "added_and_removed") => {
                let at = lsn(&row["lsn"])?;
                require!(at >= fork, "what was added lies before the fork: {row}");
                let put_at = row["put_at_ms"].as_u64().ok_or("no put_at_ms")?;
                let is_announced = !announced.is_known
                    || at < announced.live
                    || put_at + HEARD_SLACK_MS >= announced.heard_at_ms;
                require!(is_announced, "LOST beyond what was announced ({announced:?}): {row}");
                self.put.insert((queue, id));
            }
            Some("removed" | "moved") => {
                self.removed.insert((queue, id));
            }
            other => fail!("{other:?} is no change: {row}"),
        }
        Ok(())
    }

    /// The history with what this tail excuses: units that are in it wholly may be there or not,
    /// and of a move only those messages are judged that were there at the fork. `before`: so many
    /// units had begun when live was lost; later ones are of the new history.
    ///
    /// # Errors
    /// A message of the tail that is there all the same.
    pub fn excuse(
        &self,
        history: &History,
        before: usize,
        found: &Contents,
    ) -> Try<ExcusedHistory> {
        let gone: HashSet<Id> =
            self.put.iter().filter(|(queue, _)| *queue != Queue::To).map(|(_, id)| *id).collect();
        let there = found.iter().flat_map(|(queue, ids)| ids.iter().map(move |id| (*queue, *id)));
        for (queue, id) in there {
            require!(!gone.contains(&id), "{id} was lost, and is in {queue:?}");
        }
        let mut excused = ExcusedHistory::default();
        for (number, unit) in history.units().enumerate() {
            let unit = match unit {
                // A client may take what it had been given before.
                Unit::Move(fate, ids) if number >= before && *fate != Fate::Committed => {
                    let rest = ids.iter().copied().filter(|id| !gone.contains(id)).collect();
                    Unit::Move(*fate, rest)
                }
                later if number >= before => later.clone(),
                Unit::Put(fate, messages) => {
                    let lost = messages.iter().filter(|message| self.put.contains(message)).count();
                    excused.lost += if *fate == Fate::Committed { lost } else { 0 };
                    Unit::Put(excused_fate(*fate, lost > 0), messages.clone())
                }
                Unit::Move(fate, ids) => {
                    let is_of_tail = |id: &&Id| self.put.contains(&(Queue::To, **id));
                    let undone = ids.iter().filter(is_of_tail).count();
                    let rest: Vec<Id> =
                        ids.iter().copied().filter(|id| !gone.contains(id)).collect();
                    if *fate == Fate::Committed && undone > 0 {
                        excused.came_back += rest.len();
                        for id in &rest {
                            require!(
                                self.removed.contains(&(Queue::From, *id)),
                                "{id} is back, and was not removed behind the fork"
                            );
                        }
                    }
                    Unit::Move(excused_fate(*fate, undone > 0), rest)
                }
            };
            excused.history.begin(unit);
        }
        excused.history.takes_returns_of(history);
        Ok(excused)
    }
}

fn excused_fate(fate: Fate, is_lost: bool) -> Fate {
    match fate {
        Fate::Committed if is_lost => Fate::Unknown,
        fate => fate,
    }
}

/// A history, and what was excused in it.
#[derive(Debug, Default)]
pub struct ExcusedHistory {
    /// What is left to be judged.
    pub history: History,
    /// Confirmed messages that are lost.
    pub lost: usize,
    /// Messages of confirmed moves that are back.
    pub came_back: usize,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id(number: u32) -> Id {
        Id { round: 1, producer: 2, number }
    }

    fn row(change: &str, queue: Queue, number: u32, at: u16, put_at: u64) -> String {
        let id = format!("{ID_PREFIX}{}", id(number));
        json!({
            "change": change, "queue": queue.name(), "message_id": id,
            "lsn": format!("<0:0:0:{at}>"), "put_at_ms": put_at,
        })
        .to_string()
    }

    fn tail(rows: &[String], announced: &LossNotice) -> Try<Tail> {
        let summary = json!({"kind": "summary", "fork_lsn": "<0:0:0:100>", "tail_bytes": 9});
        Tail::read(&format!("{}\n{summary}", rows.join("\n")), announced)
    }

    const ANNOUNCED: LossNotice =
        LossNotice { kept: 100, live: 200, is_known: true, heard_at_ms: 50_000 };

    #[test]
    fn what_is_lost_must_have_been_announced() {
        assert!(tail(&[row("added", Queue::From, 1, 150, 10)], &ANNOUNCED).is_ok());
        assert!(tail(&[row("added", Queue::From, 1, 250, 50_000)], &ANNOUNCED).is_ok());
        let why = tail(&[row("added", Queue::From, 1, 250, 10)], &ANNOUNCED).unwrap_err();
        assert!(why.to_string().contains("LOST beyond"), "{why}");
        let why = tail(&[row("added", Queue::From, 1, 50, 10)], &ANNOUNCED).unwrap_err();
        assert!(why.to_string().contains("before the fork"), "{why}");
        let more = LossNotice { kept: 101, ..ANNOUNCED };
        assert!(tail(&[row("added", Queue::From, 1, 150, 10)], &more).is_err());
    }

    #[test]
    fn only_what_the_tail_has_is_excused() {
        let lost = tail(&[row("added", Queue::From, 1, 150, 10)], &ANNOUNCED).unwrap();
        let mut history = History::default();
        history.begin(Unit::Put(Fate::Committed, vec![(Queue::From, id(0))]));
        history.begin(Unit::Put(Fate::Committed, vec![(Queue::From, id(1))]));
        let found =
            |ids: &[u32]| Contents::from([(Queue::From, ids.iter().map(|n| id(*n)).collect())]);
        let excused = lost.excuse(&history, history.count(), &found(&[0])).unwrap();
        assert_eq!(excused.lost, 1);
        excused.history.judge(&found(&[0])).unwrap();
        let excused = lost.excuse(&history, history.count(), &found(&[])).unwrap();
        assert!(excused.history.judge(&found(&[])).unwrap_err().to_string().contains("LOST"));
        assert!(
            lost.excuse(&history, history.count(), &found(&[0, 1])).is_err(),
            "it is there all the same"
        );
    }

    #[test]
    fn a_move_that_is_undone_must_be_among_the_removals() {
        let rows = [row("removed", Queue::From, 0, 50, 10), row("added", Queue::To, 0, 150, 10)];
        let mut history = History::default();
        history.begin(Unit::Put(Fate::Committed, vec![(Queue::From, id(0))]));
        history.begin(Unit::Move(Fate::Committed, vec![id(0)]));
        let found = Contents::from([(Queue::From, vec![id(0)])]);
        let excused =
            tail(&rows, &ANNOUNCED).unwrap().excuse(&history, history.count(), &found).unwrap();
        assert_eq!((excused.lost, excused.came_back), (0, 1));
        excused.history.judge(&found).unwrap();
        assert!(
            tail(&rows[1..], &ANNOUNCED)
                .unwrap()
                .excuse(&history, history.count(), &found)
                .is_err()
        );
        assert!(history.judge(&found).is_err());
    }

    #[test]
    fn a_move_of_lost_messages_is_judged_by_the_others() {
        let rows = [
            row("removed", Queue::From, 0, 50, 10),
            row("added_and_removed", Queue::From, 1, 150, 10),
            row("added", Queue::To, 0, 160, 10),
            row("added", Queue::To, 1, 161, 10),
        ];
        let mut history = History::default();
        history.begin(Unit::Put(Fate::Committed, vec![(Queue::From, id(0))]));
        history.begin(Unit::Put(Fate::Committed, vec![(Queue::From, id(1))]));
        history.begin(Unit::Move(Fate::Committed, vec![id(0), id(1)]));
        let found = Contents::from([(Queue::From, vec![id(0)])]);
        let excused =
            tail(&rows, &ANNOUNCED).unwrap().excuse(&history, history.count(), &found).unwrap();
        assert_eq!((excused.lost, excused.came_back), (1, 1));
        excused.history.judge(&found).unwrap();
    }
}
