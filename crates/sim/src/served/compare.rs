//! What an observer saw of the queues against what was promised.
//!
//! Not here: looking; the promises themselves (`history`).

use std::collections::{BTreeMap, BTreeSet};

use super::look::DEAD_LETTERS;
use crate::client::queue_name;
use crate::history::History;
use crate::view::Row;

/// Which messages of the clients there are, in the order of each queue. One whose content could not
/// be read for a while may be a dead letter instead, and is whole again.
pub(crate) fn identify(
    history: &History,
    queues: usize,
    rows: &[Row],
) -> Result<BTreeSet<usize>, String> {
    let mut present = BTreeSet::new();
    for queue in 0..queues {
        let name = queue_name(queue);
        let mut browsed = Vec::new();
        for row in rows.iter().filter(|row| row.queue == name) {
            let number = history.identify(&row.content)?;
            let put = &history.puts[number];
            if (put.queue, put.priority) != (queue, row.priority) {
                return Err(format!("message {number} is another one: {put:?}, {row:?}"));
            }
            browsed.push(number);
        }
        history.check_order(&browsed)?;
        present.extend(browsed);
    }
    for row in set_aside(rows) {
        let number = history.identify(&row.content)?;
        if !present.insert(number) {
            return Err(format!("message {number} is in its queue, and was set aside: {row:?}"));
        }
    }
    Ok(present)
}

/// Messages that could not be read when their turn came.
pub(crate) fn set_aside(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|row| row.queue == DEAD_LETTERS)
}

/// What was promised is there.
pub(crate) fn judge_rows(history: &History, queues: usize, rows: &[Row]) -> Result<(), String> {
    history.judge(&identify(history, queues, rows)?)
}

/// The depth of a queue is the number of its messages.
pub(crate) fn judge_depths(rows: &[Row], depths: &[(String, u64)]) -> Result<(), String> {
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    rows.iter().for_each(|row| *counted.entry(&row.queue).or_default() += 1);
    for (queue, depth) in depths {
        let there = counted.get(queue.as_str()).copied().unwrap_or_default();
        if there != *depth {
            return Err(format!("{queue} has depth {depth}, but {there} messages"));
        }
    }
    Ok(())
}

/// Each instance holds the same. A backout that was counted when it was decided is in an image even
/// if its record was never committed: there may be more of them, never less.
pub(crate) fn same(node: usize, rows: &[Row], others: &[Row]) -> Result<(), String> {
    let equal = |(row, other): (&Row, &Row)| {
        let backouts = other.backouts;
        Row { backouts, ..row.clone() } == *other
    };
    if rows.len() == others.len() && rows.iter().zip(others).all(equal) {
        return Ok(());
    }
    let (here, there) = (rows.len(), others.len());
    let first = rows.iter().zip(others).find(|pair| !equal(*pair));
    Err(format!(
        "instance {node} holds {here} messages, the one before it {there}; first to differ: \
         {first:?}"
    ))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::history::{Fate, Put};

    fn row(queue: &str, number: usize) -> Row {
        Row {
            queue: queue.to_owned(),
            sequence: 1,
            priority: 4,
            persistent: true,
            backouts: 0,
            content: Bytes::from(History::content(number, 5)),
        }
    }

    #[test]
    fn a_message_that_was_set_aside_is_not_lost_and_is_nowhere_else() {
        let mut history = History::by_connection();
        let number = history.put(Put {
            client: 0,
            queue: 0,
            priority: 4,
            persistent: true,
            unit: None,
            fate: Fate::Yes,
            delivered: false,
            gets: Vec::new(),
            bytes: 5,
        });
        let (there, aside) = (row(&queue_name(0), number), row(DEAD_LETTERS, number));
        assert!(judge_rows(&history, 1, &[]).is_err());
        for rows in [vec![there.clone()], vec![aside.clone()]] {
            assert_eq!(judge_rows(&history, 1, &rows), Ok(()));
        }
        assert!(judge_rows(&history, 1, &[there, aside]).is_err());
    }
}
