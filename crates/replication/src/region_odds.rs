//! Two logs that are not one, in words for the operator. What the words say is followed, so none of
//! them advises to empty a folder that may hold the only copy.
//!
//! Not here: the judgement (`region_meeting`).

use towline_log::LogId;
use towline_types::Standing;

/// One of the two groups.
pub(crate) struct OddGroup<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Whether it is live; `None`: it is being promoted.
    pub(crate) is_live: Option<bool>,
    /// Whether its log has a history.
    pub(crate) has_history: bool,
    /// The id of its log.
    pub(crate) log_id: LogId,
}

/// How the one of two groups follows that is to.
const RETURN: &str = "at the one that is to follow, 'towline region divergence' lists and exports \
                      what it has of its own, and 'towline region rejoin' has it follow";

/// Why a log with this standing is not shipped; `None`: it is.
pub(crate) fn partition(
    standing: Standing,
    shipping: &OddGroup<'_>,
    receiving: &OddGroup<'_>,
) -> Option<String> {
    let [live, other] = [shipping, receiving].map(|group| group.name);
    Some(match standing {
        Standing::Empty | Standing::Continues => return None,
        Standing::ReceivingHasTail { fork } => format!(
            "the log of group '{other}' has a tail behind {fork} that group '{live}' does not have"
        ),
        Standing::ReceivingIsAhead => format!(
            "the log of group '{other}' goes further than that of group '{live}', in the same \
             history: group '{live}' has lost a part of its log, or is not the live group. To keep \
             what '{other}' has, order 'towline region failover' there before more is put \
             at '{live}'"
        ),
        Standing::ShippingIsOld { fork, has_tail } => {
            let tail = if has_tail { ", and has a tail of its own behind that" } else { "" };
            format!(
                "group '{other}' went on in a newer history: group '{live}' is an old live \
                 group, the logs part at {fork}{tail}"
            )
        }
        Standing::Diverged { fork } => format!(
            "both groups went on in histories that the other one does not know: the logs part at \
             {fork}: {RETURN}"
        ),
        Standing::Unrelated => format!(
            "the log of group '{other}' has nothing in common with that of group '{live}': {}",
            what_to_keep(shipping, receiving)
        ),
    })
}

/// Both groups are live. The words are the same whichever of them ships: each dials the other one,
/// and what changed with the direction would be said again and again.
pub(crate) fn both_live(shipping: &OddGroup<'_>, receiving: &OddGroup<'_>) -> String {
    let mut names = [shipping, receiving].map(|group| group.name);
    names.sort_unstable();
    let [one, other] = names;
    let what = match is_without_log(shipping) || is_without_log(receiving) {
        true => what_to_keep(shipping, receiving),
        false => RETURN.to_owned(),
    };
    format!(
        "groups '{one}' and '{other}' are both live: neither takes the log of the other one. If \
         this stays so: {what}"
    )
}

/// The logs have different ids.
pub(crate) fn other_log(shipping: &OddGroup<'_>, receiving: &OddGroup<'_>) -> String {
    let [live, other] = [shipping, receiving].map(|it| format!("{:032x}", it.log_id.0));
    format!(
        "the log of group '{}' ({live}) is not that of group '{}' ({other}): {}",
        shipping.name,
        receiving.name,
        what_to_keep(shipping, receiving)
    )
}

/// It is live by its configuration, and its log has never been one of two regions.
fn is_without_log(group: &OddGroup<'_>) -> bool {
    !group.has_history && group.is_live == Some(true)
}

/// Which of two logs without a batch in common is to be kept.
fn what_to_keep(shipping: &OddGroup<'_>, receiving: &OddGroup<'_>) -> String {
    let both = [(shipping, receiving), (receiving, shipping)];
    let lost = both.iter().find(|(one, other)| is_without_log(one) && other.has_history);
    let Some((one, other)) = lost else {
        return "look at both ('towline browse', 'towline region rehearse') before anything is \
                emptied; the one that is not kept begins as recovery, with empty folders"
            .to_owned();
    };
    let [one_name, other_name] = [one, other].map(|group| group.name);
    let serves = match other.is_live {
        Some(true) => "is live".to_owned(),
        Some(false) | None => "can be made live ('towline region failover' there)".to_owned(),
    };
    format!(
        "group '{one_name}' has a new log, and group '{other_name}' has one with histories: if \
         '{one_name}' had that log and lost it, do not empty '{other_name}', which {serves}; bring \
         the disk of '{one_name}' back, or start it with empty folders and role = \"recovery\""
    )
}
