//! Clauses to commands, by the table. Everything that a command may not say is refused here, so
//! that [`Command`] can be trusted.

use towline_core::object::{DeliverySequence, QueueKind};
use towline_types::limits;

use super::Fault;
use super::clause::{Clause, ClauseValue, Clauses};
use super::suggest::suggestion;
use crate::attributes::{
    self, ATTRIBUTES, Attribute, AttributeId as Id, Kind, OBJECTS, Object, VERBS, Verb,
};
use crate::command::{
    AliasChanges, AlterAlias, AlterLocal, AlterModel, Clear, Command, Condition, Define,
    DefineModel, Delete, Display, LocalChanges, Move, NamePattern, ObjectType, Operator,
    QueueManagerChanges, Selection, StopConnection, Subject,
};

/// A checked value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Checked {
    Text(String),
    Number(u64),
    Choice(&'static str),
    Flag(bool),
}

/// A statement's clauses after verb and object.
struct Rest {
    object: Object,
    clauses: Vec<Clause>,
}

/// What DEFINE and ALTER say.
#[derive(Default)]
struct Settings {
    replace: bool,
    like: Option<String>,
    values: Vec<(Id, Checked)>,
}

/// The command that clauses mean; `end` is where the text ends.
pub(super) fn command(Clauses { clauses, end }: Clauses) -> Result<Command, Fault> {
    let mut clauses = clauses.into_iter();
    let Some(first) = clauses.next() else { return Err(Fault::new(end, "there is no command")) };
    let verb = verb_of(&first)?;
    if verb == Verb::End {
        return match clauses.next() {
            Some(extra) => Err(Fault::new(extra.position, "END takes nothing after it")),
            None => Ok(Command::End),
        };
    }
    let Some(second) = clauses.next() else {
        let objects = objects_for(verb).join(", ");
        return Err(Fault::new(end, format!("{} what? Expected {objects}", first.name)));
    };
    let object = object_of(&second, verb)?;
    let rest = Rest { object, clauses: clauses.collect() };
    if verb == Verb::Display {
        return display(&second, &rest);
    }
    if object == Object::QueueManager {
        second.no_value()?;
        return alter_queue_manager(&rest);
    }
    if verb == Verb::Stop {
        return stop(&second, &rest);
    }
    let name = full_name(second.value()?)?;
    match verb {
        Verb::Define => define(name, &rest),
        Verb::Alter => alter(name, &rest),
        Verb::Delete => delete(name, &rest),
        Verb::Clear => match rest.clauses.first() {
            Some(extra) => Err(unknown_clause(extra, object, &[])),
            None => Ok(Command::Clear(Clear { name })),
        },
        Verb::Move => move_messages(name, &rest, end),
        Verb::Display | Verb::Stop | Verb::End => unreachable!("these were dealt with above"),
    }
}

fn verb_of(clause: &Clause) -> Result<Verb, Fault> {
    let verb = attributes::verb(&clause.name).ok_or_else(|| {
        let names = VERBS.iter().map(|entry| entry.name);
        unknown(&clause.name, clause.position, "a command", names)
    })?;
    clause.no_value()?;
    Ok(verb)
}

/// Names of the objects that a verb takes.
fn objects_for(verb: Verb) -> Vec<&'static str> {
    let taken = OBJECTS.iter().filter(|entry| entry.verbs.contains(&verb));
    taken.map(|entry| entry.name).collect()
}

fn object_of(clause: &Clause, verb: Verb) -> Result<Object, Fault> {
    let names = objects_for(verb);
    let Some(object) = attributes::object(&clause.name) else {
        return Err(unknown(&clause.name, clause.position, "an object", names));
    };
    if object.entry().verbs.contains(&verb) {
        return Ok(object);
    }
    let names = names.join(", ");
    let message = format!("{} does not take {}; expected {names}", verb_name(verb), clause.name);
    Err(Fault::new(clause.position, message))
}

fn verb_name(verb: Verb) -> &'static str {
    VERBS.iter().find(|entry| entry.verb == verb).map_or("", |entry| entry.name)
}

/// The fault that a word is not what it should be.
fn unknown<'w>(
    word: &str,
    position: usize,
    what: &str,
    words: impl IntoIterator<Item = &'w str>,
) -> Fault {
    if attributes::is_foreign(word) {
        let message = format!("{word} is known in IBM MQ, but not supported by Towline yet");
        return Fault::new(position, message);
    }
    Fault::new(position, format!("{word} is not {what}{}", suggestion(word, words)))
}

/// The fault that an object has no such clause; `more` are words that are no attributes.
fn unknown_clause(clause: &Clause, object: Object, more: &[&'static str]) -> Fault {
    let known = ATTRIBUTES.iter().filter(|each| each.can_show(object)).map(|each| each.name);
    let what = format!("an attribute of {}", object.entry().name);
    if let Some(other) = ATTRIBUTES.iter().find(|each| each.is_called(&clause.name)) {
        let message = if other.can_show(object) {
            format!("{} cannot be given here; it can only be displayed", clause.name)
        } else {
            format!("{} is not {what}", clause.name)
        };
        return Fault::new(clause.position, message);
    }
    unknown(&clause.name, clause.position, &what, known.chain(more.iter().copied()))
}

/// A name that stands for one object.
fn full_name(given: &ClauseValue) -> Result<String, Fault> {
    let name = name(given)?;
    if name.is_empty() {
        return Err(Fault::new(given.position, "a name is empty"));
    }
    if name.ends_with('*') {
        let message = "a generic name is not allowed here; name one object";
        return Err(Fault::new(given.position, message));
    }
    Ok(name)
}

/// A name, perhaps empty.
fn name(given: &ClauseValue) -> Result<String, Fault> {
    let name = given.text.trim();
    let limit = limits::QUEUE_NAME_BYTES_MAX;
    if name.len() > limit {
        return Err(Fault::new(given.position, format!("a name is longer than {limit} bytes")));
    }
    if name.chars().any(char::is_control) {
        return Err(Fault::new(given.position, "a name has a control character"));
    }
    Ok(name.into())
}

/// The attribute that a clause names, with NO cut off a flag.
fn attribute_of(clause: &Clause) -> Option<(&'static Attribute, bool)> {
    let word = clause.name.as_str();
    if let Some(attribute) = ATTRIBUTES.iter().find(|each| each.is_called(word)) {
        return Some((attribute, true));
    }
    let flag = word.strip_prefix("NO")?;
    let attribute =
        ATTRIBUTES.iter().find(|each| each.kind == Kind::Flag && each.is_called(flag))?;
    Some((attribute, false))
}

/// A value that fits its attribute.
fn checked(attribute: &Attribute, clause: &Clause, yes: bool) -> Result<Checked, Fault> {
    if attribute.kind == Kind::Flag {
        clause.no_value()?;
        return Ok(Checked::Flag(yes));
    }
    let given = clause.value()?;
    let refuse = |why: String| Err(Fault::new(given.position, format!("{}: {why}", clause.name)));
    match attribute.kind {
        Kind::Text { characters_max } => {
            let text = given.text.trim_end();
            if text.chars().count() > characters_max {
                return refuse(format!("text is longer than {characters_max} characters"));
            }
            if text.chars().any(char::is_control) {
                return refuse("text has a control character".into());
            }
            Ok(Checked::Text(text.into()))
        }
        Kind::Name => name(given).map(Checked::Text),
        Kind::Number { min, max, .. } => match given.text.parse::<u64>() {
            Ok(number) if (min..=max).contains(&number) => Ok(Checked::Number(number)),
            Ok(_) | Err(_) => refuse(format!("{} is not a number from {min} to {max}", given.text)),
        },
        Kind::Choice(words) => match words.iter().find(|word| **word == given.text) {
            Some(word) => Ok(Checked::Choice(word)),
            None => refuse(format!(
                "{} is not one of {}{}",
                given.text,
                words.join(", "),
                suggestion(&given.text, words.iter().copied())
            )),
        },
        Kind::Flag => unreachable!("flags were dealt with above"),
    }
}

impl Rest {
    /// Of what DISPLAY shows attributes: TYPE(HANDLE) may stand behind those that it is about.
    fn displayed(&self) -> Object {
        let is_handle = |clause: &Clause| {
            let values = clause.values.as_deref().unwrap_or_default();
            clause.name == "TYPE" && values.iter().any(|value| value.text == "HANDLE")
        };
        match self.object {
            Object::QueueStatus | Object::Connection if self.clauses.iter().any(is_handle) => {
                Object::Handle
            }
            object => object,
        }
    }

    /// Reads what DEFINE and ALTER may say.
    fn settings(&self, define: bool) -> Result<Settings, Fault> {
        let mut settings = Settings::default();
        let mut seen: Vec<String> = Vec::new();
        for clause in &self.clauses {
            let attribute = attribute_of(clause);
            let plain = attribute.map_or(clause.name.as_str(), |(attribute, _)| attribute.name);
            let key = plain.strip_prefix("NO").unwrap_or(plain);
            if seen.iter().any(|known| known == key) {
                return Err(Fault::new(clause.position, format!("{} is given twice", clause.name)));
            }
            seen.push(key.into());
            match (clause.name.as_str(), attribute) {
                ("REPLACE" | "NOREPLACE", None) if define => {
                    clause.no_value()?;
                    settings.replace = clause.name == "REPLACE";
                }
                ("LIKE", None) if define => settings.like = Some(full_name(clause.value()?)?),
                (_, Some((attribute, yes))) if attribute.can_set(self.object) => {
                    settings.values.push((attribute.id, checked(attribute, clause, yes)?));
                }
                (_, _) => {
                    let more: &[&str] =
                        if define { &["REPLACE", "NOREPLACE", "LIKE"] } else { &[] };
                    return Err(unknown_clause(clause, self.object, more));
                }
            }
        }
        Ok(settings)
    }
}

fn define(name: String, rest: &Rest) -> Result<Command, Fault> {
    let Settings { replace, like, values } = rest.settings(true)?;
    Ok(match rest.object {
        Object::Local => {
            Command::DefineLocal(Define { name, replace, like, changes: local(values) })
        }
        Object::Alias => {
            Command::DefineAlias(Define { name, replace, like, changes: alias(values) })
        }
        Object::Model => {
            let (kind, changes) = model(values, rest)?;
            let define = Define { name, replace, like, changes };
            Command::DefineModel(DefineModel { define, kind })
        }
        Object::Queue
        | Object::QueueManager
        | Object::QueueStatus
        | Object::Connection
        | Object::Handle => {
            unreachable!("the table has no DEFINE for these")
        }
    })
}

fn alter(name: String, rest: &Rest) -> Result<Command, Fault> {
    let values = rest.settings(false)?.values;
    Ok(match rest.object {
        Object::Local => Command::AlterLocal(AlterLocal { name, changes: local(values) }),
        Object::Alias => Command::AlterAlias(AlterAlias { name, changes: alias(values) }),
        Object::Model => {
            let (kind, changes) = model(values, rest)?;
            Command::AlterModel(AlterModel { name, changes, kind })
        }
        Object::Queue
        | Object::QueueManager
        | Object::QueueStatus
        | Object::Connection
        | Object::Handle => {
            unreachable!("the table has no ALTER of a name for these")
        }
    })
}

fn alter_queue_manager(rest: &Rest) -> Result<Command, Fault> {
    let mut changes = QueueManagerChanges::default();
    for (id, value) in rest.settings(false)?.values {
        match id {
            Id::Description => changes.description = Some(value.text()),
            Id::DeadLetterQueue => changes.dead_letter_queue = Some(value.text()),
            Id::MessageBytesMax => changes.message_bytes_max = Some(value.number()),
            Id::UnitMessagesMax => changes.unit_messages_max = Some(value.narrow()),
            other => unreachable!("the table lets no {} through", other.name()),
        }
    }
    Ok(Command::AlterQueueManager(changes))
}

fn delete(name: String, rest: &Rest) -> Result<Command, Fault> {
    let object = match rest.object {
        Object::Local => ObjectType::Local,
        Object::Alias => ObjectType::Alias,
        Object::Model => ObjectType::Model,
        Object::Queue
        | Object::QueueManager
        | Object::QueueStatus
        | Object::Connection
        | Object::Handle => {
            unreachable!("the table has no DELETE for these")
        }
    };
    let mut purge = None;
    for clause in &rest.clauses {
        match clause.name.as_str() {
            "PURGE" | "NOPURGE" if object == ObjectType::Local && purge.is_none() => {
                clause.no_value()?;
                purge = Some(clause.name == "PURGE");
            }
            "PURGE" | "NOPURGE" => {
                let message = format!("{} is not allowed here", clause.name);
                return Err(Fault::new(clause.position, message));
            }
            _ => return Err(unknown_clause(clause, rest.object, &["PURGE", "NOPURGE"])),
        }
    }
    Ok(Command::Delete(Delete { name, object, purge: purge.unwrap_or(false) }))
}

fn move_messages(name: String, rest: &Rest, end: usize) -> Result<Command, Fault> {
    let mut to = None;
    let mut add = None;
    for clause in &rest.clauses {
        match clause.name.as_str() {
            "TOQLOCAL" if to.is_none() => to = Some(full_name(clause.value()?)?),
            "TYPE" if add.is_none() => {
                let given = clause.value()?;
                add = match given.text.as_str() {
                    "MOVE" => Some(false),
                    "ADD" => Some(true),
                    other => {
                        let message = format!("TYPE: {other} is not one of MOVE, ADD");
                        return Err(Fault::new(given.position, message));
                    }
                };
            }
            "TOQLOCAL" | "TYPE" => {
                return Err(Fault::new(clause.position, format!("{} is given twice", clause.name)));
            }
            _ => return Err(unknown_clause(clause, rest.object, &["TOQLOCAL", "TYPE"])),
        }
    }
    let Some(to) = to else { return Err(Fault::new(end, "MOVE needs TOQLOCAL(name)")) };
    Ok(Command::Move(Move { name, to, add: add.unwrap_or(false) }))
}

fn stop(head: &Clause, rest: &Rest) -> Result<Command, Fault> {
    let given = head.value()?;
    let Ok(id) = given.text.parse() else {
        let message = format!("{} is not the number of a connection", given.text);
        return Err(Fault::new(given.position, message));
    };
    match rest.clauses.first() {
        Some(extra) => Err(unknown_clause(extra, rest.object, &[])),
        None => Ok(Command::StopConnection(StopConnection { id })),
    }
}

impl Checked {
    fn text(self) -> String {
        match self {
            Checked::Text(text) => text,
            other => unreachable!("the table says text, not {other:?}"),
        }
    }

    fn number(self) -> u64 {
        match self {
            Checked::Number(number) => number,
            other => unreachable!("the table says number, not {other:?}"),
        }
    }

    /// A number with a range in the table that fits.
    fn narrow<N: TryFrom<u64>>(self) -> N {
        match N::try_from(self.number()) {
            Ok(number) => number,
            Err(_) => unreachable!("the table's range fits"),
        }
    }

    /// Whether it is this word.
    fn is(self, word: &str) -> bool {
        match self {
            Checked::Choice(chosen) => chosen == word,
            other => unreachable!("the table says choice, not {other:?}"),
        }
    }

    fn flag(self) -> bool {
        match self {
            Checked::Flag(flag) => flag,
            other => unreachable!("the table says flag, not {other:?}"),
        }
    }
}

fn local(values: Vec<(Id, Checked)>) -> LocalChanges {
    let mut changes = LocalChanges::default();
    for (id, value) in values {
        match id {
            Id::Description => changes.description = Some(value.text()),
            Id::DepthMax => changes.depth_max = Some(value.number()),
            Id::MessageBytesMax => changes.message_bytes_max = Some(value.number()),
            Id::Put => changes.put_enabled = Some(value.is("ENABLED")),
            Id::Get => changes.get_enabled = Some(value.is("ENABLED")),
            Id::DefaultPersistence => changes.default_persistent = Some(value.is("YES")),
            Id::DefaultPriority => changes.default_priority = Some(value.narrow()),
            Id::Sequence => {
                let fifo = value.is("FIFO");
                changes.sequence =
                    Some(if fifo { DeliverySequence::Fifo } else { DeliverySequence::Priority });
            }
            Id::BackoutThreshold => changes.backout_threshold = Some(value.narrow()),
            Id::BackoutQueue => changes.backout_queue = Some(value.text()),
            Id::Share => changes.shareable = Some(value.flag()),
            Id::DefaultInput => changes.default_shared = Some(value.is("SHARED")),
            other => unreachable!("the table lets no {} through", other.name()),
        }
    }
    changes
}

fn alias(values: Vec<(Id, Checked)>) -> AliasChanges {
    let mut changes = AliasChanges::default();
    for (id, value) in values {
        match id {
            Id::Target => changes.target = Some(value.text()),
            Id::Description => changes.description = Some(value.text()),
            Id::Put => changes.put_enabled = Some(value.is("ENABLED")),
            Id::Get => changes.get_enabled = Some(value.is("ENABLED")),
            Id::DefaultPersistence => changes.default_persistent = Some(value.is("YES")),
            Id::DefaultPriority => changes.default_priority = Some(value.narrow()),
            other => unreachable!("the table lets no {} through", other.name()),
        }
    }
    changes
}

fn model(
    values: Vec<(Id, Checked)>,
    rest: &Rest,
) -> Result<(Option<QueueKind>, LocalChanges), Fault> {
    let (kind, others): (Vec<_>, Vec<_>) =
        values.into_iter().partition(|(id, _)| *id == Id::DefinitionType);
    let kind = match kind.into_iter().next() {
        None => None,
        Some((_, Checked::Choice("TEMPDYN"))) => Some(QueueKind::TemporaryDynamic),
        Some((_, Checked::Choice("PERMDYN"))) => Some(QueueKind::PermanentDynamic),
        Some(_) => {
            let place = rest.clauses.iter().find(|clause| clause.name == "DEFTYPE");
            let position = place.map_or(0, |clause| clause.position);
            return Err(Fault::new(position, "DEFTYPE of a QMODEL is TEMPDYN or PERMDYN"));
        }
    };
    Ok((kind, local(others)))
}

/// DISPLAY; `head` is the object's clause.
fn display(head: &Clause, rest: &Rest) -> Result<Command, Fault> {
    let mut subject = match rest.object {
        Object::Local => Subject::Locals,
        Object::Alias => Subject::Aliases,
        Object::Model => Subject::Models,
        Object::Queue => Subject::Queues,
        Object::QueueManager => Subject::QueueManager,
        Object::QueueStatus => Subject::QueueStatus,
        Object::Connection => Subject::Connections,
        Object::Handle => unreachable!("the table has no DISPLAY HANDLE"),
    };
    let object = rest.displayed();
    let name = if rest.object == Object::QueueManager {
        head.no_value()?;
        NamePattern::StartsWith(String::new())
    } else {
        NamePattern::parse(&name(head.value()?)?)
    };
    let mut condition = None;
    let mut all = false;
    let mut only = Vec::new();
    for clause in &rest.clauses {
        match (clause.name.as_str(), attribute_of(clause)) {
            ("ALL", None) => {
                clause.no_value()?;
                all = true;
            }
            ("WHERE", None) if condition.is_none() => condition = Some(where_(clause, rest)?),
            ("WHERE", None) => return Err(Fault::new(clause.position, "WHERE is given twice")),
            ("TYPE", _) if clause.values.is_some() => subject = of_type(subject, clause)?,
            (_, Some((attribute, _))) if attribute.can_show(object) => {
                clause.no_value()?;
                only.push(attribute.id);
            }
            (_, _) => return Err(unknown_clause(clause, object, &["ALL", "WHERE"])),
        }
    }
    only.sort_unstable();
    only.dedup();
    let attributes = match (all, only.is_empty()) {
        (true, _) => Selection::All,
        (false, true) => Selection::Unsaid,
        (false, false) => Selection::Only(only),
    };
    Ok(Command::Display(Display { subject, name, condition, attributes }))
}

/// `TYPE(...)` narrows DISPLAY QUEUE; on status it says whether the object is shown or its handles.
fn of_type(subject: Subject, clause: &Clause) -> Result<Subject, Fault> {
    let given = clause.value()?;
    match (subject, given.text.as_str()) {
        (Subject::Queues, "QLOCAL" | "QL") => Ok(Subject::Locals),
        (Subject::Queues, "QALIAS" | "QA") => Ok(Subject::Aliases),
        (Subject::Queues, "QMODEL" | "QM") => Ok(Subject::Models),
        (Subject::Queues, "ALL")
        | (Subject::QueueStatus, "QUEUE")
        | (Subject::Connections, "CONN") => Ok(subject),
        (Subject::QueueStatus, "HANDLE") => Ok(Subject::QueueHandles),
        (Subject::Connections, "HANDLE") => Ok(Subject::ConnectionHandles),
        (_, other) => Err(Fault::new(given.position, format!("TYPE({other}) is not allowed here"))),
    }
}

/// `WHERE(attribute operator value)`.
fn where_(clause: &Clause, rest: &Rest) -> Result<Condition, Fault> {
    let Some([attribute, operator, value]) = clause.values.as_deref() else {
        let message =
            "WHERE needs an attribute, an operator and a value: WHERE(attribute operator value)";
        return Err(Fault::new(clause.position, message));
    };
    let known = ATTRIBUTES.iter().find(|each| each.is_called(&attribute.text));
    let Some(known) = known.filter(|each| each.can_show(rest.displayed())) else {
        let named =
            Clause { name: attribute.text.clone(), position: attribute.position, values: None };
        return Err(unknown_clause(&named, rest.displayed(), &[]));
    };
    let operator = match operator.text.as_str() {
        "LT" => Operator::Less,
        "GT" => Operator::Greater,
        "EQ" => Operator::Equal,
        "NE" => Operator::NotEqual,
        "LE" => Operator::LessOrEqual,
        "GE" => Operator::GreaterOrEqual,
        "LK" => Operator::Like,
        "NL" => Operator::NotLike,
        "CT" => Operator::Contains,
        "EX" => Operator::Excludes,
        other => {
            let words = "LT, GT, EQ, NE, LE, GE, LK, NL, CT, EX";
            let message = format!("{other} is not an operator; expected one of {words}");
            return Err(Fault::new(operator.position, message));
        }
    };
    let number = matches!(known.kind, Kind::Number { .. });
    if number && value.text.parse::<u64>().is_err() {
        let message = format!("{} is compared with a number, not {}", known.name, value.text);
        return Err(Fault::new(value.position, message));
    }
    Ok(Condition { attribute: known.id, operator, value: value.text.trim_end().into() })
}
