//! On behalf of which user the instance's own decisions are.

use bytes::Bytes;
use towline_admin::status::Status;
use towline_core::command::{DefineLocal, LocalChanges};
use towline_types::BodyLocation;

use super::*;
use crate::journal::NotAppended;
use crate::request::Request;

const CLIENT: ConnectionId = ConnectionId(1);

/// Takes all, and never writes it.
struct Taking;

impl Journal for Taking {
    fn append(&self, _facts: &mut [Fact], _: Durability) -> Result<Lsn, NotAppended> {
        Ok(Lsn(1))
    }

    fn room_for_puts(&self) -> u64 {
        u64::MAX
    }

    fn resident(&self, _location: BodyLocation) -> Option<Bytes> {
        None
    }

    fn surroundings(&self, _now: Time) -> Status {
        Status::default()
    }
}

fn connected(user: &str) -> Instance {
    let mut instance = Instance::new("QM1", Limits::default(), 1 << 20);
    let enters = Request::Connected {
        container: "c".into(),
        user: Some(user.into()),
        address: String::new(),
        sole: false,
    };
    let input = Input::Requests { connection: CLIENT, requests: &mut vec![enters] };
    instance.step(Time(1), input, &Taking, &mut Outbound::default());
    instance
}

fn user(name: &str) -> Principal {
    Principal::of_client(Some(name))
}

#[test]
fn what_a_connection_asks_for_is_decided_on_behalf_of_its_user_and_nothing_after_it() {
    let mut instance = connected("alice");
    assert_eq!(instance.decision.principal, Principal::Internal, "the requests are over");
    assert_eq!(instance.decides_for(CLIENT), Principal::Internal);
    assert_eq!(instance.decision.principal, user("alice"));
    assert_eq!(instance.decides_for(ConnectionId(2)), user("alice"));
    assert_eq!(instance.decision.principal, Principal::Anonymous, "it is not known");
}

#[test]
fn a_connection_that_enters_asks_on_behalf_of_its_user_from_then_on() {
    let mut instance = Instance::new("QM1", Limits::default(), 1 << 20);
    instance.decides_for(CLIENT);
    assert_eq!(instance.decision.principal, Principal::Anonymous);
    let enters = Request::Connected {
        container: "c".into(),
        user: Some("alice".into()),
        address: String::new(),
        sole: false,
    };
    instance.asked(Time(1), CLIENT, enters, &Taking, &mut Outbound::default());
    assert_eq!(instance.decision.principal, user("alice"));
}

#[test]
fn the_principal_of_an_administrator_ends_with_the_command() {
    let mut instance = connected("alice");
    instance.decides_for(CLIENT);
    let mut decision = Decision::on_behalf_of(user("bob"));
    let changes = LocalChanges::default();
    let define = DefineLocal { name: "Q".into(), replace: false, like: None, changes };
    instance.rules.define_local(Time(1), &define, &mut decision).unwrap();
    instance.carry_out_decision(Time(1), decision, &Taking, &mut Outbound::default());
    assert_eq!((instance.decision.principal, instance.pending.len()), (user("alice"), 1));
}
