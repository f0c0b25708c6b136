//! On behalf of which user something is decided.

use super::rig::{CLIENT, OTHER, Rig, spec};
use crate::command::{DefineLocal, LocalChanges};
use crate::{Decision, Principal};

#[test]
fn what_a_connection_asks_for_is_decided_on_behalf_of_its_user_until_it_ends() {
    let mut rig = Rig::new();
    rig.define("Q");
    let logged = rig.log.len();
    let alice = Principal::of_client(Some("alice"));
    assert_eq!(rig.core.principal(CLIENT), &Principal::Anonymous, "it has not begun");
    rig.core.connect(CLIENT, alice.clone());
    rig.core.connect(OTHER, Principal::of_client(None));
    let target = rig.open_put("Q").unwrap();
    let (consumer, _) = rig.core.open_get(rig.now, CLIENT, &spec("Q"), &mut rig.decision).unwrap();
    let consumes = rig.core.consumers[&consumer].connection;
    for connection in [target.connection, consumes] {
        assert_eq!(rig.core.principal(connection), &alice);
    }
    assert_eq!(rig.core.principal(OTHER), &Principal::Anonymous);
    rig.disconnect(CLIENT, false);
    assert_eq!(rig.core.principal(CLIENT), &Principal::Anonymous, "it is over");
    assert_eq!(rig.log.len(), logged, "no part of it is logged");
}

#[test]
fn a_command_keeps_the_principal_that_its_caller_says_and_is_anonymous_without() {
    let mut rig = Rig::new();
    let alice = Principal::of_client(Some("alice"));
    let mut decision = Decision::on_behalf_of(alice.clone());
    let changes = LocalChanges::default();
    let command = DefineLocal { name: "Q".into(), replace: false, like: None, changes };
    rig.core.define_local(rig.now, &command, &mut decision).unwrap();
    assert_eq!((decision.facts.len(), decision.principal), (1, alice));
    assert_eq!(Decision::default().principal, Principal::Anonymous);
}
