//! Definitions: DEFINE, ALTER, DELETE, CLEAR, aliases, models, automatic definition.

use super::rig::{CLIENT, OTHER, Rig, message, persistent, rebuilt, spec};
use crate::command::{
    AliasChanges, Define, DefineLocal, DefineModel, LocalChanges, QueueManagerChanges,
};
use crate::object::{Definition, ObjectType, QueueKind};
use crate::{AutoDefine, ConsumerMode, ConsumerSpec, DanglingNames, Effect, Limits, Refusal};

pub(crate) fn define_alias(rig: &mut Rig, name: &str, target: &str, priority: Option<u8>) {
    let changes = AliasChanges {
        target: Some(target.to_owned()),
        default_priority: priority,
        ..AliasChanges::default()
    };
    let command = Define { name: name.to_owned(), replace: false, like: None, changes };
    rig.core.define_alias(rig.now, &command, &mut rig.decision).unwrap();
    rig.carry_out();
}

fn define_model(rig: &mut Rig, name: &str, kind: QueueKind) {
    let changes = LocalChanges { default_persistent: Some(true), ..LocalChanges::default() };
    let define = Define { name: name.to_owned(), replace: false, like: None, changes };
    let command = DefineModel { define, kind: Some(kind) };
    rig.core.define_model(rig.now, &command, &mut rig.decision).unwrap();
    rig.carry_out();
}

fn delete(rig: &mut Rig, name: &str, kind: ObjectType, purge: bool) -> Result<(), Refusal> {
    let done = rig.core.delete(rig.now, name, kind, purge, &mut rig.decision);
    rig.carry_out();
    done
}

#[test]
fn define_refuses_bad_names_and_attributes() {
    let mut rig = Rig::new();
    let long = "x".repeat(256);
    for name in ["", "a\nb", &long] {
        let refused = rig.define_with(name, LocalChanges::default());
        assert!(matches!(refused, Err(Refusal::BadName(_))));
    }
    let mut refuse = |changes: LocalChanges, wanted: &str| match rig.define_with("Q", changes) {
        Err(Refusal::BadAttribute { attribute, .. }) => assert_eq!(attribute, wanted),
        other => panic!("{other:?}"),
    };
    let none = LocalChanges::default;
    refuse(LocalChanges { depth_max: Some(1_000_000_000), ..none() }, "MAXDEPTH");
    refuse(LocalChanges { message_bytes_max: Some(104_857_601), ..none() }, "MAXMSGL");
    refuse(LocalChanges { default_priority: Some(10), ..none() }, "DEFPRTY");
    refuse(LocalChanges { description: Some("d".repeat(65)), ..none() }, "DESCR");
    refuse(LocalChanges { backout_queue: Some("\u{1}".to_owned()), ..none() }, "BOQNAME");
    assert!(rig.log.is_empty());
}

#[test]
fn a_definition_is_on_its_way_until_its_last_decision_is_applied_and_a_message_is_none() {
    let mut rig = Rig::new();
    let is_ahead = |rig: &Rig| rig.core.has_definitions_on_their_way();
    rig.define("Q");
    rig.instant = false;
    rig.put_persistent("Q", "m");
    assert!(!is_ahead(&rig));
    rig.define_with("R", LocalChanges::default()).unwrap();
    delete(&mut rig, "R", ObjectType::Local, false).unwrap();
    for left in [true, true, false] {
        assert!(is_ahead(&rig));
        rig.sync_one();
        rig.core.audit();
        assert_eq!(is_ahead(&rig), left);
    }
}

#[test]
fn define_twice_needs_replace_which_keeps_messages_and_resets_the_rest() {
    let mut rig = Rig::new();
    let changes = LocalChanges { depth_max: Some(5), ..LocalChanges::default() };
    rig.define_with("Q", changes).unwrap();
    rig.put_persistent("Q", "a");
    let again = rig.define_with("Q", LocalChanges::default());
    assert_eq!(again, Err(Refusal::AlreadyExists("Q".to_owned())));
    let changes = LocalChanges { default_priority: Some(1), ..LocalChanges::default() };
    let command = DefineLocal { name: "Q".to_owned(), replace: true, like: None, changes };
    rig.core.define_local(rig.now, &command, &mut rig.decision).unwrap();
    rig.carry_out();
    let Some(Definition::Local(queue)) = rig.core.definition("Q") else { panic!("no Q") };
    assert_eq!((queue.attributes.default_priority, queue.attributes.depth_max), (1, 999_999_999));
    assert_eq!(rig.browse("Q"), ["a"]);
    define_alias(&mut rig, "A", "Q", None);
    let command = DefineLocal { name: "A".to_owned(), ..command };
    let refused = rig.core.define_local(rig.now, &command, &mut rig.decision).unwrap_err();
    assert!(matches!(refused, Refusal::WrongType { .. }));
}

#[test]
fn like_gives_what_is_not_said() {
    let mut rig = Rig::new();
    let changes = LocalChanges { depth_max: Some(5), ..LocalChanges::default() };
    rig.define_with("P", changes).unwrap();
    let changes = LocalChanges { default_priority: Some(1), ..LocalChanges::default() };
    let like = Some("P".to_owned());
    let command = DefineLocal { name: "Q".to_owned(), replace: false, like, changes };
    rig.core.define_local(rig.now, &command, &mut rig.decision).unwrap();
    rig.carry_out();
    let Some(Definition::Local(queue)) = rig.core.definition("Q") else { panic!("no Q") };
    assert_eq!((queue.attributes.default_priority, queue.attributes.depth_max), (1, 5));
}

#[test]
fn a_definition_counts_for_requests_at_once_and_for_images_when_durable() {
    let mut rig = Rig::new();
    rig.instant = false;
    rig.define("Q");
    assert!(matches!(
        rig.define_with("Q", LocalChanges::default()),
        Err(Refusal::AlreadyExists(_))
    ));
    rig.put_persistent("Q", "a");
    rig.alter("Q", &LocalChanges { depth_max: Some(1), ..LocalChanges::default() });
    let seen = |rig: &mut Rig| {
        let image = rig.image();
        let restored = rebuilt(&image, Limits::default());
        restored.queue_status("Q").is_some()
    };
    assert!(!seen(&mut rig));
    rig.sync_one();
    assert!(seen(&mut rig));
    assert!(matches!(rig.put_with("Q", message("b")), Err(Refusal::QueueFull { .. })));
    rig.sync();
    assert!(matches!(rig.put_with("Q", message("b")), Err(Refusal::QueueFull { .. })));
    rig.core.audit();
}

#[test]
fn delete_refuses_what_is_open_or_not_empty_and_frees_the_name() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put_persistent("Q", "a");
    rig.put("Q", "b");
    let open = Refusal::ObjectOpen("Q".to_owned());
    let target = rig.open_put("Q").unwrap();
    assert_eq!(delete(&mut rig, "Q", ObjectType::Local, true), Err(open.clone()));
    rig.core.close_put(&target);
    let consumer = rig.consumer("Q", 0);
    assert_eq!(delete(&mut rig, "Q", ObjectType::Local, true), Err(open));
    rig.close(consumer, false);
    let not_empty = Refusal::NotEmpty { queue: "Q".to_owned(), depth: 2 };
    assert_eq!(delete(&mut rig, "Q", ObjectType::Local, false), Err(not_empty));
    rig.instant = false;
    delete(&mut rig, "Q", ObjectType::Local, true).unwrap();
    assert!(matches!(rig.open_put("Q"), Err(Refusal::UnknownQueue(_))));
    rig.define("Q");
    rig.put_persistent("Q", "new");
    rig.sync();
    assert_eq!(rig.browse("Q"), ["new"]);
    assert_eq!((rig.core.memory_bytes(), rig.stored.len()), (0, 1));
    let mut again = rig.restart(None, rig.log.len());
    assert_eq!(again.browse("Q"), ["new"]);
    rig.core.audit();
}

#[test]
fn delete_waits_for_units_of_work_even_with_purge() {
    let mut rig = Rig::new();
    rig.define("Q");
    let target = rig.open_put("Q").unwrap();
    let unit = rig.declare();
    rig.send(&target, message("a"), Some(unit)).unwrap();
    rig.core.close_put(&target);
    let uncommitted = Refusal::Uncommitted("Q".to_owned());
    assert_eq!(delete(&mut rig, "Q", ObjectType::Local, true), Err(uncommitted.clone()));
    let cleared = rig.core.clear(rig.now, "Q", &mut rig.decision);
    assert_eq!(cleared, Err(uncommitted));
    rig.discharge(unit, true).unwrap();
    delete(&mut rig, "Q", ObjectType::Local, false).unwrap();
    rig.core.audit();
}

#[test]
fn clear_removes_what_is_there_and_nothing_that_comes_later() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put_persistent("Q", "a");
    rig.put("Q", "b");
    rig.instant = false;
    rig.core.clear(rig.now, "Q", &mut rig.decision).unwrap();
    rig.carry_out();
    rig.put_persistent("Q", "c");
    assert!(rig.browse("Q").is_empty(), "hidden at once");
    rig.sync();
    assert_eq!(rig.browse("Q"), ["c"]);
    assert_eq!((rig.status("Q").totals.cleared, rig.stored.len()), (2, 1));
    let mut again = rig.restart(None, rig.log.len());
    assert_eq!(again.browse("Q"), ["c"]);
    rig.core.audit();
}

#[test]
fn aliases_lead_to_local_queues_only_and_have_their_own_switches() {
    let mut rig = Rig::new();
    rig.define("Q");
    define_alias(&mut rig, "A", "Q", None);
    define_alias(&mut rig, "AA", "A", None);
    define_alias(&mut rig, "NOWHERE", "MISSING", None);
    let target = rig.open_put("A").unwrap();
    assert_eq!(target.name, "Q");
    for name in ["AA", "NOWHERE"] {
        assert_eq!(rig.open_put(name).unwrap_err(), Refusal::BadAlias(name.to_owned()));
        assert!(matches!(rig.open_get(&spec(name)), Err(Refusal::BadAlias(_))));
    }
    let changes = AliasChanges { put_enabled: Some(false), ..AliasChanges::default() };
    rig.core.alter_alias(rig.now, "A", &changes, &mut rig.decision).unwrap();
    rig.carry_out();
    let inhibited = Refusal::PutInhibited("A".to_owned());
    assert_eq!(rig.send(&target, message("a"), None), Err(inhibited.clone()));
    assert_eq!(rig.open_put("A").unwrap_err(), inhibited);
    rig.put("Q", "a");
    delete(&mut rig, "A", ObjectType::Alias, false).unwrap();
    assert_eq!(rig.send(&target, message("a"), None), Err(Refusal::Deleted("A".to_owned())));
    let again = rig.restart(None, rig.log.len());
    assert!(again.core.definition("A").is_none() && again.core.definition("AA").is_some());
}

#[test]
fn a_queue_is_defined_on_first_use_by_rule() {
    let rule = |pattern: &str, model: &str| AutoDefine {
        pattern: pattern.to_owned(),
        model: model.to_owned(),
    };
    let auto_define = vec![rule("APP.*", "MODEL"), rule("ONE", "")];
    let mut rig = Rig::with(Limits { auto_define, ..Limits::default() });
    define_model(&mut rig, "MODEL", QueueKind::TemporaryDynamic);
    rig.instant = false;
    let target = rig.open_put("APP.X").unwrap();
    assert_eq!(rig.last_durability, crate::Durability::Forced);
    rig.send(&target, persistent("a"), None).unwrap();
    rig.sync();
    assert_eq!(rig.browse("APP.X"), ["a"]);
    let Some(Definition::Local(queue)) = rig.core.definition("APP.X") else { panic!("none") };
    assert!(queue.attributes.default_persistent && queue.kind == QueueKind::Predefined);
    rig.open_get(&spec("ONE")).unwrap();
    assert!(matches!(rig.open_put("ONE.MORE"), Err(Refusal::UnknownQueue(_))));
    rig.sync();
    assert_eq!(rig.restart(None, rig.log.len()).depth("APP.X"), 1);
}

#[test]
fn a_name_that_is_not_there_is_refused_with_what_can_be_done() {
    let rule = |pattern: &str, model: &str| AutoDefine {
        pattern: pattern.to_owned(),
        model: model.to_owned(),
    };
    let auto_define = vec![rule("NEW.*", "NO.MODEL")];
    let mut rig = Rig::with(Limits { auto_define, ..Limits::default() });
    rig.define("ORDERS");
    rig.define("small");
    let opened = |rig: &mut Rig, name: &str| rig.open_put(name).map(drop).unwrap_err().to_string();
    let words = opened(&mut rig, "orders");
    assert_eq!(words, "queue 'orders' does not exist; did you mean 'ORDERS'?");
    let words = opened(&mut rig, "SMALL");
    assert_eq!(words, "queue 'SMALL' does not exist; did you mean 'small'?");
    assert!(opened(&mut rig, "NOPE").contains("define it with DEFINE QLOCAL('NOPE')"));
    let words = opened(&mut rig, "NEW.1");
    let rules = vec![("NEW.*".to_owned(), "NO.MODEL".to_owned())];
    let dangling = DanglingNames { dead_letter_queue: None, models: rules };
    assert_eq!(rig.core.dangling(), dangling);
    assert!(words.contains("model 'NO.MODEL'") && words.contains("DEFINE QMODEL"), "{words}");
    for (kind, said) in [
        (ObjectType::Local, "local queue 'NOPE'"),
        (ObjectType::Alias, "alias queue 'NOPE'"),
        (ObjectType::Model, "model queue 'NOPE'"),
    ] {
        let words = delete(&mut rig, "NOPE", kind, false).unwrap_err().to_string();
        assert!(words.starts_with(said) && !words.contains("DEFINE"), "{words}");
        let words = delete(&mut rig, "orders", kind, false).unwrap_err().to_string();
        assert!(words.ends_with("did you mean 'ORDERS'?"), "{words}");
    }
}

#[test]
fn a_temporary_queue_that_is_defined_anew_or_altered_is_not_logged_and_keeps_its_owner() {
    let mut rig = Rig::new();
    define_model(&mut rig, "M", QueueKind::TemporaryDynamic);
    let (name, _) = rig.core.open_dynamic(rig.now, CLIENT, "M", true, &mut rig.decision).unwrap();
    rig.carry_out();
    let logged = rig.log.len();
    let changes = LocalChanges { depth_max: Some(7), ..LocalChanges::default() };
    rig.alter(&name, &changes);
    let command = DefineLocal { name: name.clone(), replace: true, like: None, changes };
    rig.core.define_local(rig.now, &command, &mut rig.decision).unwrap();
    rig.carry_out();
    let Some(Definition::Local(queue)) = rig.core.definition(&name) else { panic!("none") };
    assert_eq!(queue.attributes.depth_max, 7);
    assert_eq!(rig.log.len(), logged, "no replica and no restart may know it");
    rig.disconnect(CLIENT, false);
    assert!(rig.core.definition(&name).is_none());
    rig.core.audit();
}

#[test]
fn a_temporary_queue_goes_with_its_connection_and_is_never_logged() {
    let mut rig = Rig::new();
    define_model(&mut rig, "M", QueueKind::TemporaryDynamic);
    let logged = rig.log.len();
    let open = |rig: &mut Rig| {
        let (name, _) =
            rig.core.open_dynamic(rig.now, CLIENT, "M", true, &mut rig.decision).unwrap();
        rig.carry_out();
        name
    };
    let (name, other_name) = (open(&mut rig), open(&mut rig));
    assert_ne!(name, other_name);
    rig.put_persistent(&name, "a");
    rig.put(&name, "b");
    assert_eq!(rig.log.len(), logged, "what is put there is not persistent");
    let refused = rig.core.open_get(rig.now, OTHER, &spec(&name), &mut rig.decision);
    assert_eq!(refused, Err(Refusal::BelongsToOther(name.clone())), "of another connection");
    let browser = ConsumerSpec { mode: ConsumerMode::Browse, ..spec(&name) };
    let (theirs, _) = rig.core.open_get(rig.now, OTHER, &browser, &mut rig.decision).unwrap();
    rig.core.set_credit(theirs, 1, false);
    assert_eq!(rig.dispatch().len(), 1);
    rig.disconnect(CLIENT, false);
    assert!(rig.core.definition(&name).is_none());
    assert!(matches!(rig.open_put(&name), Err(Refusal::UnknownQueue(_))));
    rig.dispatch();
    let closed = |effect: &Effect| match effect {
        Effect::ConsumerClosed { consumer, reason: Refusal::Deleted(_), .. } => *consumer == theirs,
        _ => false,
    };
    assert!(rig.effects.iter().any(closed));
    assert_eq!(rig.core.memory_bytes(), 0);
    rig.disconnect(OTHER, true);
    rig.core.audit();
}

#[test]
fn puts_on_their_way_to_a_temporary_queue_vanish_with_it() {
    let mut rig = Rig::new();
    define_model(&mut rig, "M", QueueKind::TemporaryDynamic);
    rig.define("Q");
    let (name, _) = rig.core.open_dynamic(rig.now, CLIENT, "M", true, &mut rig.decision).unwrap();
    rig.carry_out();
    let target = rig.core.open_put(rig.now, OTHER, &name, &mut rig.decision).unwrap();
    let unit = rig.core.declare(rig.now, OTHER).unwrap();
    rig.send(&target, message("a"), Some(unit)).unwrap();
    let durable = rig.core.open_put(rig.now, OTHER, "Q", &mut rig.decision).unwrap();
    rig.send(&durable, persistent("b"), Some(unit)).unwrap();
    rig.disconnect(CLIENT, true);
    assert_eq!(rig.send(&target, message("c"), None), Err(Refusal::Deleted(name)));
    rig.core.discharge(rig.now, OTHER, unit, false, &mut rig.decision).unwrap();
    rig.carry_out();
    assert_eq!((rig.depth("Q"), rig.core.memory_bytes()), (1, 0));
    rig.core.audit();
}

#[test]
fn a_permanent_dynamic_queue_is_logged_and_stays_until_it_is_deleted() {
    let mut rig = Rig::new();
    define_model(&mut rig, "M", QueueKind::PermanentDynamic);
    let (name, id) = rig.core.open_dynamic(rig.now, CLIENT, "M", true, &mut rig.decision).unwrap();
    rig.carry_out();
    rig.put_persistent(&name, "a");
    rig.disconnect(CLIENT, true);
    assert_eq!(rig.restart(None, rig.log.len()).depth(&name), 1);
    for connection in [CLIENT, OTHER] {
        rig.core.delete_dynamic(connection, id).unwrap_err();
        assert_eq!(rig.depth(&name), 1);
    }
    rig.core.delete(rig.now, &name, ObjectType::Local, true, &mut rig.decision).unwrap();
    rig.carry_out();
    assert!(rig.core.definition(&name).is_none() && rig.stored.is_empty());
    rig.core.audit();
}

#[test]
fn altering_the_queue_manager_counts_at_once_and_survives() {
    let mut rig = Rig::new();
    rig.define("DLQ");
    let changes = QueueManagerChanges {
        dead_letter_queue: Some("DLQ".to_owned()),
        unit_messages_max: Some(7),
        ..QueueManagerChanges::default()
    };
    rig.core.alter_queue_manager(&changes, &mut rig.decision).unwrap();
    rig.carry_out();
    let image = rig.image();
    let replayed = rig.restart(None, rig.log.len());
    let restored = rig.restart(Some((&image, rig.log.len())), rig.log.len());
    for found in [&rig, &replayed, &restored] {
        let limits = found.core.limits();
        assert_eq!((limits.dead_letter_queue.as_str(), limits.unit_messages_max), ("DLQ", 7));
    }
    let none = QueueManagerChanges { unit_messages_max: Some(0), ..QueueManagerChanges::default() };
    let refused = rig.core.alter_queue_manager(&none, &mut rig.decision).unwrap_err();
    assert!(matches!(refused, Refusal::BadAttribute { attribute: "MAXUMSGS", .. }));
    assert_eq!(rig.core.definitions().count(), 1, "it is no queue");
}
