//! The history of another group as clients meet it: what they were promised holds, and what comes
//! behind it is refused.

use serde_json::json;
use towline_admin::status::Status;
use towline_amqp::types::DeliveryState;
use towline_core::{BeginHistory, Refusal};
use towline_node::Input;
use towline_types::{FORMAT_LEVEL_OF_REGIONS, HistoryId, Lsn, Time};

use crate::rig::{Client, Rig};
use crate::text::message;

fn history(number: u8, live: &str) -> BeginHistory {
    let cause = format!("change {number}");
    let fork = Lsn(u64::from(number - 1) * 100);
    BeginHistory { id: HistoryId([number; 16]), live: live.into(), fork, began: Time(5_000), cause }
}

fn begin(rig: &mut Rig, number: u8, live: &str) -> Result<(), Refusal> {
    rig.instance.begin_history(rig.now, &history(number, live), &rig.log, &mut rig.out)
}

/// An instance of the group EAST, which is live in the first history, and a client of it.
fn live() -> (Rig, Client) {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.instance.set_group("EAST");
    let level = FORMAT_LEVEL_OF_REGIONS;
    rig.instance.raise_format_level(rig.now, level, &rig.log, &mut rig.out).unwrap();
    rig.release_log(&mut []);
    begin(&mut rig, 1, "EAST").unwrap();
    rig.release_log(&mut []);
    let client = rig.connect();
    (rig, client)
}

/// As `towline status --json` prints it.
fn status(rig: &Rig) -> serde_json::Value {
    serde_json::to_value(rig.instance.status(rig.now, Status::default())).unwrap()
}

#[test]
fn what_was_decided_before_the_history_of_another_group_is_answered_and_nothing_behind_it_is_taken()
{
    let (mut rig, mut client) = live();
    let sender = rig.sender(&mut client, "Q");
    rig.hold_log();
    rig.send(&mut client, sender, 1, message("before").durable());
    begin(&mut rig, 2, "WEST").unwrap();
    let end = rig.log.tail.get();
    // It is decided, and not durable yet.
    rig.send(&mut client, sender, 2, message("behind").durable());
    rig.release_log(&mut [&mut client]);
    rig.send(&mut client, sender, 3, message("late").durable());
    let outcomes = rig.outcomes(&mut client);
    let accepted: Vec<u64> = outcomes
        .iter()
        .filter(|(_, state)| *state == Some(DeliveryState::Accepted))
        .map(|(key, _)| *key)
        .collect();
    assert_eq!(accepted, [1], "{outcomes:?}");
    let refused = |state: &Option<DeliveryState>| match state {
        Some(DeliveryState::Rejected { error: Some(error) }) => {
            format!("{error:?}").contains("group 'WEST' is live")
        }
        _ => false,
    };
    assert_eq!(outcomes.iter().filter(|(_, state)| refused(state)).count(), 2, "{outcomes:?}");
    assert_eq!(rig.log.tail.get(), end, "nothing is logged behind it");
}

#[test]
fn clients_that_are_lost_while_another_group_is_live_leave_nothing_in_the_log() {
    let (mut rig, mut client) = live();
    let sender = rig.sender(&mut client, "Q");
    let receiver = rig.receiver(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("a").durable());
    rig.credit(&mut client, receiver, 1);
    assert_eq!(rig.received_whole(&mut client).len(), 1);
    let unit = rig.declare(&mut client);
    rig.send_in(&mut client, sender, 2, message("b").durable(), &unit);
    begin(&mut rig, 2, "WEST").unwrap();
    rig.release_log(&mut [&mut client]);
    let end = rig.log.tail.get();
    // A backout would be counted, and logged.
    rig.lose(client);
    assert_eq!(rig.log.tail.get(), end);
    assert!(!rig.instance.has_work());
}

#[test]
fn no_history_is_decided_while_runs_wait_for_the_log() {
    let (mut rig, mut client) = live();
    let sender = rig.sender(&mut client, "Q");
    rig.log.behind.set(true);
    rig.send(&mut client, sender, 1, message("waits").durable());
    assert!(rig.instance.waits_for_log());
    let refused = begin(&mut rig, 2, "WEST");
    assert!(matches!(refused, Err(Refusal::NoHistory { .. })), "{refused:?}");
    rig.log.behind.set(false);
    rig.instance.step(rig.now, Input::LogCaughtUp, &rig.log, &mut rig.out);
    rig.release_log(&mut [&mut client]);
    assert_eq!(rig.outcomes(&mut client), [(1, Some(DeliveryState::Accepted))]);
    assert_eq!((rig.instance.histories().count(), rig.instance.is_closed()), (1, false));
}

#[test]
fn the_status_shows_the_newest_history_the_chain_and_the_changes_of_roles() {
    assert_eq!(status(&Rig::new()).get("region"), None);
    let (mut rig, _client) = live();
    begin(&mut rig, 2, "EAST").unwrap();
    rig.release_log(&mut []);
    begin(&mut rig, 3, "WEST").unwrap();
    rig.release_log(&mut []);
    let region = &status(&rig)["region"];
    let name = |number: u8| format!("{number:02x}").repeat(16);
    let row = |number: u8, fork| json!({ "history": name(number), "fork": fork });
    let change = |number: u8, fork, from, live| {
        let cause = format!("change {number}");
        json!({
            "history": name(number), "fork": fork, "from": from, "live": live, "kind": "",
            "by": "", "instance": "", "began_at": 5, "cause": cause
        })
    };
    let (first, second, third) = ("<0:0:0:0>", "<0:0:0:100>", "<0:0:0:200>");
    let wanted = json!({
        "role": "recovery",
        "history": name(3),
        "live": "WEST",
        "closed": true,
        "histories": 3,
        "chain": [row(1, first), row(2, second), row(3, third)],
        // The newest first, and the first history is none. A group is not promoted from itself:
        // which one was live before is not in this log any more.
        "role_changes": [
            change(3, third, "EAST", "WEST"),
            change(2, second, "", "EAST"),
        ],
    });
    assert_eq!(*region, wanted);
}
