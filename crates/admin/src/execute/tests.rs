//! Scripts against a queue manager that is a map.

use std::collections::BTreeMap;

use towline_core::object::{
    AliasQueue, Definition, LocalAttributes, LocalQueue, ModelQueue, QueueKind, Stamps,
};
use towline_core::{MoveCounts, QueueId, Refusal};
use towline_types::Time;

use super::*;
use crate::command::{
    AlterAlias, AlterLocal, AlterModel, Clear, DefineAlias, DefineLocal, DefineModel, Delete,
    LocalChanges, Move, QueueManagerChanges, StopConnection,
};
use crate::reply::DisplayValue;
use crate::target::{
    ConnectionRow, DefinitionRow, HandleRow, OpenInput, QueueManagerRow, QueueStatusRow, Usage,
};

/// 2026-11-21 21:37:05 UTC.
const NOW: Time = Time(1_795_297_025_000_000);

const STAMPS: Stamps = Stamps { created_at: NOW, altered_at: Time::ZERO };

/// As much of it as the tests look at.
fn over(changes: LocalChanges, base: LocalAttributes) -> LocalAttributes {
    LocalAttributes {
        description: changes.description.unwrap_or(base.description),
        depth_max: changes.depth_max.unwrap_or(base.depth_max),
        put_enabled: changes.put_enabled.unwrap_or(base.put_enabled),
        get_enabled: changes.get_enabled.unwrap_or(base.get_enabled),
        shareable: changes.shareable.unwrap_or(base.shareable),
        ..base
    }
}

#[derive(Default)]
struct Fake {
    objects: BTreeMap<String, Definition>,
    manager: QueueManagerRow,
}

impl Fake {
    fn new() -> Fake {
        let name = "QM1".into();
        Fake { manager: QueueManagerRow { name, ..Default::default() }, ..Default::default() }
    }

    fn local(&self, name: &str) -> Result<LocalQueue, Refusal> {
        match self.objects.get(name) {
            Some(Definition::Local(queue)) => Ok(queue.clone()),
            Some(_) => Err(Refusal::WrongType { name: name.into(), expected: "local queue" }),
            None => Err(Refusal::UnknownQueue(name.into())),
        }
    }
}

impl Target for Fake {
    fn queue_manager(&self) -> QueueManagerRow {
        self.manager.clone()
    }

    fn definitions(&self, each: &mut dyn FnMut(DefinitionRow<'_>)) {
        for definition in self.objects.values() {
            let depth = definition.name().len() as u64;
            let usage = matches!(definition, Definition::Local(_))
                .then_some(Usage { depth, ..Usage::default() });
            each(DefinitionRow { definition, usage, created_at: None, altered_at: None });
        }
    }

    fn queue_status(&self, each: &mut dyn FnMut(QueueStatusRow<'_>)) {
        for (name, _) in
            self.objects.iter().filter(|(_, each)| matches!(each, Definition::Local(_)))
        {
            each(QueueStatusRow {
                name,
                usage: Usage::default(),
                uncommitted: 0,
                oldest_message_age_s: None,
                last_put_at: Some(NOW),
                last_get_at: None,
                puts: 2,
                gets: 1,
                damaged: 3,
            });
        }
    }

    fn handles(&self, each: &mut dyn FnMut(HandleRow<'_>)) {
        self.connections(&mut |connection| {
            for queue in ["Q.ONE", "Q.TWO"] {
                let (input, browse, output) = (OpenInput::Shared, false, connection.id == 9);
                each(HandleRow { queue, connection, input, browse, output });
            }
        });
    }

    fn move_messages(&mut self, command: Move) -> Result<MoveCounts, Refusal> {
        self.local(&command.name)?;
        Ok(MoveCounts { moved: 3, left: u64::from(command.add) })
    }

    fn stop_connection(&mut self, command: StopConnection) -> bool {
        [9, 10].contains(&command.id)
    }

    fn connections(&self, each: &mut dyn FnMut(ConnectionRow<'_>)) {
        for id in [10, 9] {
            each(ConnectionRow {
                id,
                user: "",
                container: "c\n1",
                address: "127.0.0.1:5",
                sessions: 1,
                links: 2,
                units: 0,
            });
        }
    }

    fn define_local(&mut self, command: DefineLocal) -> Result<(), Refusal> {
        let base = match &command.like {
            Some(like) => self.local(like)?.attributes,
            None => LocalAttributes::default(),
        };
        if self.objects.contains_key(&command.name) && !command.replace {
            return Err(Refusal::AlreadyExists(command.name));
        }
        let name = command.name;
        let queue = LocalQueue {
            name: name.clone(),
            id: QueueId(1),
            kind: QueueKind::Predefined,
            stamps: STAMPS,
            attributes: over(command.changes, base),
        };
        self.objects.insert(name, Definition::Local(queue));
        Ok(())
    }

    fn define_alias(&mut self, command: DefineAlias) -> Result<(), Refusal> {
        let alias = AliasQueue {
            name: command.name.clone(),
            target: command.changes.target.unwrap_or_default(),
            description: String::new(),
            put_enabled: true,
            get_enabled: true,
            default_persistent: false,
            default_priority: 4,
            stamps: STAMPS,
        };
        self.objects.insert(command.name, Definition::Alias(alias));
        Ok(())
    }

    fn define_model(&mut self, command: DefineModel) -> Result<(), Refusal> {
        let name = command.define.name;
        let kind = command.kind.unwrap_or(QueueKind::TemporaryDynamic);
        let attributes = LocalAttributes::default();
        let model = ModelQueue { name: name.clone(), kind, attributes, stamps: STAMPS };
        self.objects.insert(name, Definition::Model(model));
        Ok(())
    }

    fn alter_local(&mut self, command: AlterLocal) -> Result<(), Refusal> {
        let mut queue = self.local(&command.name)?;
        queue.attributes = over(command.changes, queue.attributes);
        self.objects.insert(command.name, Definition::Local(queue));
        Ok(())
    }

    fn alter_alias(&mut self, command: AlterAlias) -> Result<(), Refusal> {
        Err(Refusal::UnknownQueue(command.name))
    }

    fn alter_model(&mut self, command: AlterModel) -> Result<(), Refusal> {
        Err(Refusal::UnknownQueue(command.name))
    }

    fn alter_queue_manager(&mut self, changes: QueueManagerChanges) -> Result<(), Refusal> {
        self.manager.dead_letter_queue = changes.dead_letter_queue.unwrap_or_default();
        Ok(())
    }

    fn delete(&mut self, command: Delete) -> Result<u64, Refusal> {
        self.local(&command.name)?;
        self.objects.remove(&command.name);
        Ok(0)
    }

    fn clear(&mut self, command: Clear) -> Result<u64, Refusal> {
        self.local(&command.name).map(|_| u64::from(command.name == "Q.DAMAGED") * 2)
    }
}

fn run(target: &mut Fake, script: &str) -> String {
    run_script(target, script).to_text()
}

#[test]
fn a_script_is_numbered_answered_and_summed_up() {
    let mut target = Fake::new();
    let text = run(
        &mut target,
        "* three commands\nDEF QL(A) DESCR('first') +\n  MAXDEPTH(5)\nDEF QL(A)\nDEF QLOCL(A)\n\
         ALTER QMGR DEADQ(A)\nCLEAR QL(A)\nEND\nnot read",
    );
    assert_eq!(
        text,
        "     1 : DEF QL(A) DESCR('first') MAXDEPTH(5)\n\
         TWL8006I: Queue 'A' created.\n\
         \u{20}    2 : DEF QL(A)\n\
         TWL5023E: object 'A' exists already; use REPLACE to change it.\n\
         \u{20}    3 : DEF QLOCL(A)\n\
         TWL8405E: Line 5, column 5: QLOCL is not an object; did you mean QLOCAL?\n\
         \u{20}    4 : ALTER QMGR DEADQ(A)\n\
         TWL8009I: Queue manager 'QM1' changed.\n\
         \u{20}    5 : CLEAR QL(A)\n\
         TWL8010I: Queue 'A' cleared.\n\
         TWL8417I: 5 commands read, 1 with a syntax error, 1 failed."
    );
}

#[test]
fn display_of_one_object_shows_all_in_two_columns() {
    let mut target = Fake::new();
    run(&mut target, "DEF QL(A.QUEUE) DESCR('what it is for') NOSHARE");
    let reply = run_script(&mut target, "DIS QL(A.QUEUE)");
    let text = reply.replies[0].to_text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "TWL8409I: Display queue details.");
    assert_eq!(lines[1], "   QUEUE(A.QUEUE)                          TYPE(QLOCAL)");
    assert!(text.contains("   CRDATE(2026-11-21)                      CRTIME(21.37.05)"), "{text}");
    assert!(text.contains("NOSHARE"), "{text}");
    assert!(text.contains("ALTDATE( )"), "{text}");
    assert!(text.contains("CURDEPTH(7)"), "{text}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn generic_names_and_where_choose_and_show_names_only() {
    let mut target = Fake::new();
    run(&mut target, "DEF QL(B1)\nDEF QL(B22) LIKE(B1)\nDEF QA(B3) TARGET(B1)\nDEF QM(C)");
    let names = |target: &mut Fake, text: &str| -> Vec<String> {
        let reply = run_script(target, text).replies.remove(0);
        let rows = reply.rows.iter();
        rows.map(|row| match row.attributes.get("QUEUE") {
            Some(DisplayValue::Text(name)) => name.clone(),
            other => panic!("{other:?}"),
        })
        .collect()
    };
    assert_eq!(names(&mut target, "DIS Q(*)"), ["B1", "B22", "B3", "C"]);
    assert_eq!(names(&mut target, "DIS Q(B*)"), ["B1", "B22", "B3"]);
    assert_eq!(names(&mut target, "DIS QL(*)"), ["B1", "B22"]);
    assert_eq!(names(&mut target, "DIS Q(*) TYPE(QMODEL)"), ["C"]);
    assert_eq!(names(&mut target, "DIS QL(*) WHERE(CURDEPTH GT 2)"), ["B22"]);
    assert_eq!(names(&mut target, "DIS Q(*) WHERE(CURDEPTH LE 2)"), ["B1"]);
    assert_eq!(names(&mut target, "DIS Q(*) WHERE(TARGET EQ B1)"), ["B3"]);
    assert_eq!(names(&mut target, "DIS Q(*) WHERE(TARGET NL 'B*')"), Vec::<String>::new());
    assert_eq!(names(&mut target, "DIS Q(*) WHERE(DEFTYPE CT DYN)"), ["C"]);
    assert_eq!(names(&mut target, "DIS Q(*) WHERE(SHARE EQ SHARE)"), ["B1", "B22", "C"]);
    assert_eq!(
        run_script(&mut target, "DIS Q(B3*)").replies[0].to_text(),
        "TWL8409I: Display queue details.\n   QUEUE(B3)                               TYPE(QALIAS)"
    );
    let only = run_script(&mut target, "DIS QL(B1) PUT WHERE(GET EQ ENABLED)").replies.remove(0);
    let shown: Vec<&str> = only.rows[0].attributes.0.iter().map(|(name, _)| &**name).collect();
    assert_eq!(shown, ["QUEUE", "TYPE", "GET", "PUT"]);
}

#[test]
fn what_is_not_there_fails_by_name_but_not_by_pattern() {
    let mut target = Fake::new();
    let reply = run_script(&mut target, "DIS QL(X)\nDIS QL(X*)\nDELETE QL(X)");
    assert_eq!(reply.replies[0].to_text(), "TWL8147E: Object 'X' does not exist.");
    assert_eq!(reply.replies[1].to_text(), "TWL8148I: No object matches.");
    assert_eq!((reply.read, reply.failed), (3, 2));
    assert!(!reply.is_success());
}

#[test]
fn status_and_connections_show_all_and_cannot_forge_lines() {
    let mut target = Fake::new();
    run(&mut target, "DEF QL(A)");
    let status = run_script(&mut target, "DIS QS(*)").replies.remove(0).to_text();
    assert!(status.contains("LPUTTIME(21.37.05)"), "{status}");
    assert!(status.contains("LGETDATE( )"), "{status}");
    let reply = run_script(&mut target, "DIS CONN(*)").replies.remove(0);
    let ids: Vec<_> = reply.rows.iter().map(|row| row.attributes.get("CONN").unwrap()).collect();
    assert_eq!(ids, [&DisplayValue::Text("9".into()), &DisplayValue::Text("10".into())]);
    assert!(reply.to_text().contains("APPLTAG(c\u{fffd}1)"));
}

#[test]
fn handles_are_shown_by_queue_and_by_connection() {
    let mut target = Fake::new();
    let shown = run_script(&mut target, "DIS QS(Q.T*) TYPE(HANDLE)").replies.remove(0);
    let connections: Vec<_> = shown.rows.iter().map(|row| row.attributes.get("CONN")).collect();
    assert_eq!(connections.len(), 2);
    assert!(shown.to_text().contains("TYPE(HANDLE)"), "{}", shown.to_text());
    let one = run_script(&mut target, "DIS CONN(9) TYPE(HANDLE) OUTPUT INPUT").replies.remove(0);
    let text = one.to_text();
    assert_eq!(one.rows.len(), 2);
    assert!(text.contains("QUEUE(Q.ONE)") && text.contains("OUTPUT(YES)"), "{text}");
    assert!(text.contains("INPUT(SHARED)") && !text.contains("BROWSE"), "{text}");
    let chosen = "DIS QS(*) TYPE(HANDLE) WHERE(OUTPUT EQ NO)";
    assert_eq!(run_script(&mut target, chosen).replies[0].rows.len(), 2);
}

#[test]
fn a_queue_or_a_connection_without_handles_is_not_said_to_be_missing() {
    let mut target = Fake::new();
    run(&mut target, "DEF QL(SHUT)");
    let text = "DIS QS(SHUT) TYPE(HANDLE)\nDIS QS(NONE) TYPE(HANDLE)\nDIS CONN(11) TYPE(HANDLE)";
    let reply = run_script(&mut target, text);
    assert_eq!(reply.replies[0].to_text(), "TWL8148I: No object matches.");
    assert_eq!(reply.replies[1].to_text(), "TWL8147E: Object 'NONE' does not exist.");
    assert_eq!(reply.replies[2].to_text(), "TWL8147E: Object '11' does not exist.");
    assert_eq!(reply.failed, 2);
}

#[test]
fn a_move_says_how_many_went_and_how_many_are_left() {
    let mut target = Fake::new();
    run(&mut target, "DEF QL(A)");
    let text = "MOVE QLOCAL(A) TOQLOCAL(B) TYPE(ADD)\nMOVE QL(X) TOQLOCAL(B)";
    let reply = run_script(&mut target, text);
    let said = "TWL8012I: 3 messages moved from 'A' to 'B', 1 are left.";
    assert_eq!(reply.replies[0].to_text(), said);
    assert_eq!(reply.failed, 1);
}

#[test]
fn a_connection_is_stopped_by_its_number() {
    let mut target = Fake::new();
    let reply = run_script(&mut target, "STOP CONN(9)\nSTOP CONN(8)");
    assert_eq!(reply.replies[0].to_text(), "TWL8011I: Connection 9 is closing.");
    assert_eq!(reply.replies[1].to_text(), "TWL8146E: Connection 8 does not exist.");
    assert_eq!((reply.read, reply.failed), (2, 1));
}

#[test]
fn replies_survive_json_with_order_and_types() {
    let mut target = Fake::new();
    let reply = run_script(&mut target, "DEF QL(A)\nDIS QL(A)\nDIS QX");
    let text = serde_json::to_string(&reply).unwrap();
    assert!(text.contains(r#""attributes":{"QUEUE":"A","TYPE":"QLOCAL","#), "{text}");
    assert!(text.contains(r#""SHARE":true"#), "{text}");
    assert!(text.contains(r#""CURDEPTH":1"#), "{text}");
    let back: ScriptReply = serde_json::from_str(&text).unwrap();
    assert_eq!(back, reply);
}

#[test]
fn a_script_that_is_too_long_is_refused_whole() {
    let mut target = Fake::new();
    let long = "DEF QL(A)\n".repeat(110_000);
    let reply = run_script(&mut target, &long);
    assert_eq!(reply.replies.len(), 1);
    assert!(target.objects.is_empty());
    assert!(!reply.is_success());
}

#[test]
fn like_takes_what_is_not_said_from_the_other() {
    let mut target = Fake::new();
    run(&mut target, "DEF QL(A) MAXDEPTH(5) PUT(DISABLED)\nDEF QL(B) LIKE(A) PUT(ENABLED)");
    let queue = target.local("B").unwrap();
    assert_eq!((queue.attributes.depth_max, queue.attributes.put_enabled), (5, true));
    run(&mut target, "ALTER QL(B) GET(DISABLED)");
    let queue = target.local("B").unwrap();
    assert_eq!((queue.attributes.depth_max, queue.attributes.get_enabled), (5, false));
}

#[test]
fn clear_says_how_many_damaged_messages_it_dropped() {
    let mut target = Fake::default();
    let text = run(&mut target, "DEF QL(Q.DAMAGED)\nDEF QL(Q.WHOLE)\nCLEAR QL(Q.DAMAGED)");
    assert!(text.contains("TWL8010I") && text.contains("TWL2062W: 2 of the messages"), "{text}");
    let text = run(&mut target, "CLEAR QL(Q.WHOLE)\nDIS QS(Q.WHOLE) DAMAGED");
    assert!(!text.contains("TWL2062W") && text.contains("DAMAGED(3)"), "{text}");
}
