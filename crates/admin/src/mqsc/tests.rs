//! MQSC text to commands: lexing as in IBM MQ, faults with positions and suggestions.

use towline_core::object::{DeliverySequence, QueueKind};

use super::*;
use crate::attributes::{ATTRIBUTES, AttributeId, Kind, OBJECTS, Object, Verb};
use crate::command::{
    AliasChanges, AlterAlias, AlterModel, Clear, Condition, Define, DefineModel, Delete, Display,
    LocalChanges, NamePattern, ObjectType, Operator, QueueManagerChanges, Selection, Subject,
};

fn texts(script: &str) -> Vec<String> {
    Reader::all(script).iter().map(|statement| statement.text().to_owned()).collect()
}

#[track_caller]
fn one(text: &str) -> Command {
    let statements = Reader::all(text);
    assert_eq!(statements.len(), 1, "{text}");
    parse(&statements[0]).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[track_caller]
fn refused(text: &str, line: usize, column: usize, part: &str) {
    let statements = Reader::all(text);
    let error = statements.iter().find_map(|each| parse(each).err()).expect(text);
    assert!(error.message.contains(part), "{text}: {error}");
    assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
}

#[test]
fn comments_and_blank_lines_are_skipped() {
    assert_eq!(texts("* one\n\n  * two\nEND\n"), ["END"]);
    assert_eq!(texts("DEF QL(A) +\n* between\n\n  GET(DISABLED)"), ["DEF QL(A) GET(DISABLED)"]);
}

#[test]
fn plus_skips_blanks_and_minus_keeps_them() {
    assert_eq!(texts("DEF QL(A) DESCR('one +\n    two')"), ["DEF QL(A) DESCR('one two')"]);
    assert_eq!(texts("DEF QL(A) DESCR('one-\n  two')"), ["DEF QL(A) DESCR('one  two')"]);
    assert_eq!(texts("DEF QL(LONG.+\n  NAME)   \n"), ["DEF QL(LONG.NAME)"]);
    assert_eq!(texts("DEF QL(A) +"), ["DEF QL(A)"]);
}

#[test]
fn a_semicolon_ends_a_command_outside_quotes_only() {
    assert_eq!(texts("DIS QMGR; DIS Q(*);"), ["DIS QMGR", "DIS Q(*)"]);
    assert_eq!(texts("DEF QL(A) DESCR('a;b''c;d')"), ["DEF QL(A) DESCR('a;b''c;d')"]);
}

#[test]
fn define_takes_every_attribute_of_a_local_queue() {
    let command = one("define qlocal('orders') descr('it''s ours') maxdepth(7) maxmsgl(8) \
                       put(disabled) get(enabled) defpsist(yes) defprty(9) msgdlvsq(fifo) \
                       bothresh(3) boqname('bad') noshare defsopt(excl) replace like(other)");
    let expected = Define {
        name: "orders".into(),
        replace: true,
        like: Some("OTHER".into()),
        changes: LocalChanges {
            description: Some("it's ours".into()),
            depth_max: Some(7),
            message_bytes_max: Some(8),
            put_enabled: Some(false),
            get_enabled: Some(true),
            default_persistent: Some(true),
            default_priority: Some(9),
            sequence: Some(DeliverySequence::Fifo),
            backout_threshold: Some(3),
            backout_queue: Some("bad".into()),
            shareable: Some(false),
            default_shared: Some(false),
        },
    };
    assert_eq!(command, Command::DefineLocal(expected));
}

#[test]
fn verbs_and_objects_have_their_short_forms() {
    let alias = Define {
        name: "A".into(),
        replace: false,
        like: None,
        changes: AliasChanges { target: Some("B".into()), ..AliasChanges::default() },
    };
    assert_eq!(one("DEF QA(a) TARGQ(b)"), Command::DefineAlias(alias.clone()));
    assert_eq!(one("DEFINE QALIAS (A) TARGET ( 'B' ) NOREPLACE"), Command::DefineAlias(alias));
    let define =
        Define { name: "M".into(), replace: false, like: None, changes: LocalChanges::default() };
    let kind = Some(QueueKind::PermanentDynamic);
    assert_eq!(
        one("DEF QM(M) DEFTYPE(PERMDYN)"),
        Command::DefineModel(DefineModel { define, kind })
    );
    assert_eq!(
        one("ALT QMODEL(M) DEFTYPE(PERMDYN)"),
        Command::AlterModel(AlterModel {
            name: "M".into(),
            changes: LocalChanges::default(),
            kind
        })
    );
    let changes = AliasChanges { put_enabled: Some(false), ..AliasChanges::default() };
    assert_eq!(
        one("ALT QA(A) PUT(DISABLED)"),
        Command::AlterAlias(AlterAlias { name: "A".into(), changes })
    );
    assert_eq!(one("CLEAR QL(Q)"), Command::Clear(Clear { name: "Q".into() }));
    let delete = Delete { name: "Q".into(), object: ObjectType::Local, purge: true };
    assert_eq!(one("DELETE QL(Q) PURGE"), Command::Delete(delete.clone()));
    let kept = Delete { purge: false, ..delete };
    assert_eq!(one("delete qlocal(q) nopurge"), Command::Delete(kept));
    assert_eq!(one("QUIT"), Command::End);
    assert_eq!(one("end"), Command::End);
    assert_eq!(
        one("ALTER QMGR DEADQ('DLQ') MAXUMSGS(5) MAXMSGL(6) DESCR(x)"),
        Command::AlterQueueManager(QueueManagerChanges {
            description: Some("X".into()),
            dead_letter_queue: Some("DLQ".into()),
            message_bytes_max: Some(6),
            unit_messages_max: Some(5),
        })
    );
}

#[test]
fn display_takes_names_conditions_and_attributes() {
    let display = |subject, name: &str, condition, attributes| {
        let name = NamePattern::parse(name);
        Command::Display(Display { subject, name, condition, attributes })
    };
    let unsaid = Selection::Unsaid;
    assert_eq!(one("DIS Q(*)"), display(Subject::Queues, "*", None, unsaid.clone()));
    assert_eq!(one("DIS QL('a*')"), display(Subject::Locals, "a*", None, unsaid.clone()));
    assert_eq!(one("DIS Q(A) TYPE(QA)"), display(Subject::Aliases, "A", None, unsaid.clone()));
    assert_eq!(one("DIS QMGR"), display(Subject::QueueManager, "*", None, unsaid));
    assert_eq!(one("DIS CONN(*) ALL"), display(Subject::Connections, "*", None, Selection::All));
    let condition = |attribute, operator, value: &str| {
        Some(Condition { attribute, operator, value: value.into() })
    };
    assert_eq!(
        one("DIS QS(A*) WHERE(CURDEPTH GT 0) UNCOM CURDEPTH UNCOM"),
        display(
            Subject::QueueStatus,
            "A*",
            condition(AttributeId::Depth, Operator::Greater, "0"),
            Selection::Only(vec![AttributeId::Depth, AttributeId::Uncommitted]),
        )
    );
    assert_eq!(
        one("DIS QLOCAL(*) WHERE( DESCR LK 'abc*' ) SHARE"),
        display(
            Subject::Locals,
            "*",
            condition(AttributeId::Description, Operator::Like, "abc*"),
            Selection::Only(vec![AttributeId::Share]),
        )
    );
}

#[test]
fn faults_name_line_column_and_what_was_meant() {
    refused("DEFNE QLOCAL(A)", 1, 1, "DEFNE is not a command; did you mean DEFINE?");
    refused("* x\nDEFINE QLOKAL(A)", 2, 8, "did you mean QLOCAL?");
    refused("DEF QL(A) +\n   MAXDEPHT(5)", 2, 4, "did you mean MAXDEPTH?");
    refused("DEF QL(Ä) ö MAXDEPTH(5)", 1, 11, "ö is not an attribute of QLOCAL");
    refused("DEF QL(A) MAXDEPTH(many)", 1, 20, "MANY is not a number from 0 to 999999999");
    refused("DEF QL(A) MAXDEPTH(1000000000)", 1, 20, "not a number from 0 to 999999999");
    refused("DEF QL(A) MAXDEPTH(-1)", 1, 20, "not a number");
    refused("DEF QL(A) PUT(ENABLE)", 1, 15, "one of ENABLED, DISABLED; did you mean ENABLED?");
    refused("DEF QL(A) PUT", 1, 14, "PUT needs a value");
    refused("MOVE QL(A)", 1, 11, "MOVE needs TOQLOCAL(name)");
    refused("MOVE QL(A) TOQLOCAL(B) TYPE(ALL)", 1, 29, "ALL is not one of MOVE, ADD");
    refused("STOP CONN(A)", 1, 11, "A is not the number of a connection");
    refused("STOP QL(A)", 1, 6, "STOP does not take QL; expected CONN");
    refused("DIS QS(A) TYPE(HANDLE) UNCOM", 1, 24, "UNCOM is not an attribute of HANDLE");
    refused("DIS QS(A) INPUT", 1, 11, "INPUT is not an attribute of QSTATUS");
    refused("DEF QL(A) PUT()", 1, 14, "empty");
    refused("DEF QL(A) DESCR(two words)", 1, 21, "in quotes");
    refused("DEF QL(A) SHARE(YES)", 1, 16, "takes no value");
    refused("DEF QL(A) SHARE NOSHARE", 1, 17, "is given twice");
    refused("DEF QL(A) PUT(ENABLED) PUT(ENABLED)", 1, 24, "is given twice");
    refused("DEF QL(A) REPLACE NOREPLACE", 1, 19, "is given twice");
    refused("DEF QL(A) CURDEPTH(5)", 1, 11, "only be displayed");
    refused("DEF QL(A) TARGET(B)", 1, 11, "not an attribute of QLOCAL");
    refused("DEF QL(A*)", 1, 8, "generic name");
    refused("DEF QL('')", 1, 8, "a name is empty");
    refused("DEF QL(A", 1, 7, "without ')'");
    refused("DEF QL A)", 1, 9, "without '('");
    refused("DEF QL A", 1, 7, "QL needs a value");
    refused("DEF QL('A)", 1, 8, "closing quote");
    refused("DEF QL(A(B))", 1, 9, "inside parentheses");
    refused("DEF", 1, 4, "QLOCAL, QALIAS, QMODEL");
    refused("DEF QMGR", 1, 5, "DEFINE does not take QMGR");
    refused("DEF QSTATUS(A)", 1, 5, "DEFINE does not take QSTATUS");
    refused("ALT QL(A) REPLACE", 1, 11, "REPLACE is not an attribute");
    refused("DEF QM(A) DEFTYPE(PREDEFINED)", 1, 11, "TEMPDYN or PERMDYN");
    refused("DELETE QA(A) PURGE", 1, 14, "is not allowed");
    refused("CLEAR QL(A) NOW", 1, 13, "NOW is not");
    refused("CLEAR QA(A)", 1, 7, "CLEAR does not take QA");
    refused("END NOW", 1, 5, "END takes nothing after it");
    refused("DIS QL(*) WHERE(CURDEPTH GT)", 1, 11, "an attribute, an operator and a value");
    refused("DIS QL(*) WHERE(CURDEPTH XX 1)", 1, 26, "XX is not an operator");
    refused("DIS QL(*) WHERE(CURDEPTH GT A)", 1, 29, "compared with a number");
    refused("DIS QL(*) WHERE(CURDEPT GT 1)", 1, 17, "did you mean CURDEPTH?");
    refused("DIS QL(*) PUTS", 1, 11, "PUTS is not an attribute of QLOCAL");
    refused("DIS QL(*) TYPE(HANDLE)", 1, 16, "TYPE(HANDLE)");
    refused("(A)", 1, 1, "expected a word");
    refused("DEF QL(A) \u{7}", 1, 11, "is not allowed");
    refused(&format!("DEF QL({})", "x".repeat(256)), 1, 8, "longer than 255 bytes");
    refused(&format!("DEF QL(A) DESCR('{}')", "x".repeat(65)), 1, 17, "64 characters");
    refused(&format!("DEF QL(A) {}", "x ".repeat(17_000)), 1, 32_763, "longer");
}

#[test]
fn what_only_ibm_mq_knows_is_called_by_that() {
    let text = "known in IBM MQ, but not supported by Towline yet";
    refused("START CHANNEL(X)", 1, 1, text);
    refused("DEFINE CHANNEL(X)", 1, 8, text);
    refused("DEFINE QREMOTE(X)", 1, 8, text);
    refused("DEF QL(A) USAGE(XMITQ)", 1, 11, text);
    refused("DEF QL(A) NOTRIGGER", 1, 11, text);
    refused("DIS QMGR CCSID", 1, 10, text);
}

/// A value of an attribute that the table allows.
fn example(attribute: &crate::attributes::Attribute) -> String {
    match attribute.kind {
        Kind::Text { .. } => format!("{}('x y')", attribute.name),
        Kind::Name => format!("{}(X)", attribute.name),
        Kind::Number { max, .. } => format!("{}({max})", attribute.name),
        Kind::Choice(words) => format!("{}({})", attribute.name, words[0]),
        Kind::Flag => format!("NO{}", attribute.name),
    }
}

#[test]
fn every_row_of_the_table_can_be_given_and_shown() {
    for object in OBJECTS {
        let name = if object.object == Object::QueueManager { "" } else { "(X)" };
        for attribute in ATTRIBUTES.iter().filter(|each| each.can_set(object.object)) {
            for verb in ["DEFINE", "ALTER"] {
                if verb == "DEFINE" && !object.verbs.contains(&Verb::Define) {
                    continue;
                }
                one(&format!("{verb} {}{name} {}", object.name, example(attribute)));
            }
        }
        for attribute in ATTRIBUTES.iter().filter(|each| each.can_show(object.object)) {
            let shown = match object.object {
                Object::Handle => "QSTATUS(X) TYPE(HANDLE)".to_owned(),
                _ => format!("{}{name}", object.name),
            };
            one(&format!("DISPLAY {shown} {}", attribute.name));
        }
    }
}

#[test]
fn defaults_in_the_table_are_those_of_the_rules() {
    use towline_core::object::LocalAttributes;

    let all: Vec<String> = ATTRIBUTES
        .iter()
        .filter(|each| each.can_set(Object::Local))
        .map(|each| match each.kind {
            Kind::Flag => each.default.to_owned(),
            _ => format!("{}('{}')", each.name, each.default),
        })
        .collect();
    let Command::DefineLocal(define) = one(&format!("DEFINE QLOCAL(X) {}", all.join(" "))) else {
        panic!("a definition");
    };
    let rules = LocalAttributes::default();
    let expected = LocalChanges {
        description: Some(rules.description),
        depth_max: Some(rules.depth_max),
        message_bytes_max: Some(rules.message_bytes_max),
        put_enabled: Some(rules.put_enabled),
        get_enabled: Some(rules.get_enabled),
        default_persistent: Some(rules.default_persistent),
        default_priority: Some(rules.default_priority),
        sequence: Some(rules.sequence),
        backout_threshold: Some(rules.backout_threshold),
        backout_queue: Some(rules.backout_queue),
        shareable: Some(rules.shareable),
        default_shared: Some(rules.default_shared),
    };
    assert_eq!(define.changes, expected);
}

#[test]
fn arbitrary_bytes_never_panic() {
    bolero::check!().with_iterations(2_000).for_each(|input: &[u8]| {
        if let Ok(text) = std::str::from_utf8(input) {
            for statement in Reader::all(text) {
                if let Err(error) = parse(&statement) {
                    assert!(error.line >= 1);
                }
            }
        }
    });
}

mod generated {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_words_are_understood_or_refused_within_the_text(
            words in proptest::collection::vec(prop_oneof![
                Just("DEFINE"), Just("ALTER"), Just("DISPLAY"), Just("DELETE"), Just("CLEAR"),
                Just("QLOCAL"), Just("QALIAS"), Just("QMODEL"), Just("QUEUE"), Just("QMGR"),
                Just("QSTATUS"), Just("CONN"), Just("("), Just(")"), Just("A"), Just("*"),
                Just("'b c'"), Just("'"), Just("MAXDEPTH(5)"), Just("PUT(ENABLED)"), Just("SHARE"),
                Just("WHERE(CURDEPTH GT 5)"), Just("ALL"), Just("REPLACE"), Just("LIKE(B)"),
                Just("+\n"), Just("-\n"), Just(";"), Just("\n"), Just("PURGE"), Just("TYPE(QL)"),
                Just("DEFTYPE(TEMPDYN)"), Just("DEADQ(X)"), Just("ä"),
            ], 0..12)) {
            let text = words.join(" ");
            let lines = text.lines().count().max(1);
            for statement in Reader::all(&text) {
                if let Err(error) = parse(&statement) {
                    prop_assert!(error.line >= 1 && error.line <= lines, "{text}: {error}");
                    prop_assert!(error.column >= 1 && error.column <= text.len() + 1);
                }
            }
        }
    }
}
