//! `towline put`: messages from an argument, files or standard input, in units of work when asked.
//!
//! Ends well only when every message was accepted; it does not try again. When it fails or is
//! interrupted it says how many messages were put, so that one can go on from there.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use bytes::Bytes;
use towline_client::{Body, Client, Message, Property, Sender, Unit};

use crate::arguments::Put;
use crate::failure::Failure;
use crate::{progress, show, signals};

/// Messages that may be on their way without an outcome.
const WINDOW: usize = 256;

/// Lines that were read and not put yet.
const LINES_AHEAD: usize = 1_024;

/// What standard input and Ctrl-C have to say.
enum Fed {
    Line(Vec<u8>),
    End(std::io::Result<()>),
    Interrupted,
}

/// Runs the command.
pub(crate) fn run(arguments: &Put) -> Result<(), Failure> {
    let pattern = pattern(arguments)?;
    let once = arguments.body.is_none() && (arguments.file.is_empty() || arguments.lines);
    if once && arguments.file.is_empty() && std::io::stdin().is_terminal() {
        eprintln!("Type the message; Ctrl-D ends it.");
    }
    let mut client = arguments.reach.connect()?;
    let sender = client.sender(&arguments.queue)?;
    let total = if arguments.lines { None } else { Some(arguments.count) };
    let (feed, fed) = sync_channel(LINES_AHEAD);
    let wake = feed.clone();
    let interrupted = signals::first_asks(move || {
        // When it is full there are lines to put, and the putter looks before each one.
        wake.try_send(Fed::Interrupted).ok();
    })?;
    let mut putter = Putter {
        client: &mut client,
        sender,
        pattern,
        batch: arguments.transaction,
        unit: None,
        sent: 0,
        committed: 0,
        bar: progress::bar_of_puts(total, arguments.reach.json),
        interrupted,
        input: Some((feed, fed)),
    };
    let ended = putter.all(arguments).and_then(|()| putter.commit());
    let put = putter.put();
    putter.bar.finish_and_clear();
    if let Err(failure) = ended {
        let alone = put == 0 && !arguments.lines;
        return Err(if alone { failure } else { stopped(failure, put) });
    }
    client.close()?;
    if arguments.reach.json {
        show::json(&serde_json::json!({ "queue": arguments.queue, "put": put }))
    } else {
        let plural = if put == 1 { "" } else { "s" };
        show::line(&format!("{put} message{plural} put to {}", arguments.queue))
    }
}

/// Why it ended too early, and how far it came.
fn stopped(failure: Failure, put: u64) -> Failure {
    match failure {
        Failure::Failed(reason) => {
            let plural = if put == 1 { "" } else { "s" };
            Failure::Failed(format!("{reason}; {put} message{plural} put before that"))
        }
        other => other,
    }
}

/// Everything of the messages but their bodies.
fn pattern(arguments: &Put) -> Result<Message, Failure> {
    let properties: Result<Vec<(String, Property)>, Failure> =
        arguments.properties.iter().map(|text| property(text)).collect();
    let ttl_ms = match arguments.ttl {
        None => None,
        Some(seconds) => Some(milliseconds(seconds)?),
    };
    Ok(Message {
        persistent: Some(!arguments.non_persistent),
        priority: arguments.priority,
        ttl_ms,
        message_id: arguments.message_id.clone(),
        correlation_id: arguments.correlation_id.clone(),
        reply_to: arguments.reply_to.clone(),
        subject: arguments.subject.clone(),
        properties: properties?,
        ..Message::default()
    })
}

/// AMQP's ttl is 32 bits of milliseconds.
fn milliseconds(seconds: f64) -> Result<u32, Failure> {
    let whole = std::time::Duration::from_secs_f64(seconds).as_millis();
    u32::try_from(whole).map_err(|_| Failure::Usage("--ttl: at most 4294967 seconds".into()))
}

/// `NAME=VALUE`.
fn property(text: &str) -> Result<(String, Property), Failure> {
    let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
        return Err(Failure::Usage(format!("--property {text}: expected NAME=VALUE")));
    };
    let quoted = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\''));
    let value = match (quoted, value) {
        (Some(text), _) => Property::Text(text.into()),
        (None, "true") => Property::Boolean(true),
        (None, "false") => Property::Boolean(false),
        (None, text) => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(number), _) => Property::Long(number),
            // "nan" and "inf" are words before they are numbers.
            (Err(_), Ok(number)) if number.is_finite() => Property::Double(number),
            (Err(_), _) => Property::Text(text.into()),
        },
    };
    Ok((name.into(), value))
}

struct Putter<'c> {
    client: &'c mut Client,
    sender: Sender,
    pattern: Message,
    batch: Option<u64>,
    unit: Option<Unit>,
    /// Messages of units of work that were committed, and all that were sent.
    committed: u64,
    sent: u64,
    bar: indicatif::ProgressBar,
    interrupted: Arc<AtomicBool>,
    /// Where the lines of standard input come, until they are read.
    input: Option<(SyncSender<Fed>, Receiver<Fed>)>,
}

impl Putter<'_> {
    fn all(&mut self, arguments: &Put) -> Result<(), Failure> {
        if let Some(body) = &arguments.body {
            return self.repeat(&[Bytes::copy_from_slice(body.as_bytes())], arguments.count);
        }
        if arguments.lines {
            return self.lines(arguments);
        }
        let mut bodies = Vec::new();
        for file in &arguments.file {
            let body = if is_standard_input(file) { standard_input()? } else { content(file)? };
            bodies.push(body);
        }
        if arguments.file.is_empty() {
            bodies.push(standard_input()?);
        }
        self.repeat(&bodies, arguments.count)
    }

    /// Lines are put as they come; only files can be read again for `--count`.
    fn lines(&mut self, arguments: &Put) -> Result<(), Failure> {
        if arguments.file.is_empty() || arguments.file.iter().any(|file| is_standard_input(file)) {
            if arguments.count != 1 {
                let message =
                    "--count with --lines needs --file: standard input can be read only once";
                return Err(Failure::Usage(message.into()));
            }
            return self.lines_of_input();
        }
        for _ in 0..arguments.count {
            for file in &arguments.file {
                let open = File::open(file);
                let open = open.map_err(|error| Failure::about(file.display(), error))?;
                self.each_line(BufReader::new(open))?;
            }
        }
        Ok(())
    }

    fn each_line(&mut self, input: impl BufRead) -> Result<(), Failure> {
        let mut result = Ok(());
        read_lines(input, |line| {
            result = self.line(&line);
            result.is_ok()
        })?;
        result
    }

    /// A thread of its own reads standard input: a command that waits for a line must end at
    /// Ctrl-C.
    fn lines_of_input(&mut self) -> Result<(), Failure> {
        let Some((feed, fed)) = self.input.take() else { return Ok(()) };
        std::thread::Builder::new().name("lines".into()).spawn(move || {
            let input = std::io::stdin().lock();
            let read = read_lines(input, |line| feed.send(Fed::Line(line)).is_ok());
            // The putter may have failed and gone.
            feed.send(Fed::End(read)).ok();
        })?;
        for fed in fed {
            match fed {
                Fed::Line(line) => self.line(&line)?,
                Fed::End(read) => return Ok(read?),
                Fed::Interrupted => return Err(Failure::Failed("interrupted".into())),
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Failure> {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        self.one(&Bytes::copy_from_slice(text))
    }

    fn repeat(&mut self, bodies: &[Bytes], count: u64) -> Result<(), Failure> {
        for _ in 0..count {
            for body in bodies {
                self.one(body)?;
            }
        }
        Ok(())
    }

    /// Puts one message: text when the body is UTF-8, bytes otherwise.
    fn one(&mut self, body: &Bytes) -> Result<(), Failure> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Failure::Failed("interrupted".into()));
        }
        self.pattern.body = match std::str::from_utf8(body) {
            Ok(text) => Body::Text(text.into()),
            Err(_) => Body::Bytes(body.clone()),
        };
        if self.batch.is_some() && self.unit.is_none() {
            self.unit = Some(self.client.declare()?);
        }
        self.client.send(self.sender, &self.pattern, self.unit.as_ref())?;
        self.client.settle_to(self.sender, WINDOW)?;
        self.sent = self.sent.saturating_add(1);
        self.bar.inc(1);
        if self.batch.is_some_and(|batch| self.sent.is_multiple_of(batch)) {
            self.commit()?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.client.settle_to(self.sender, 0)?;
        if let Some(unit) = self.unit.take() {
            self.client.commit(unit)?;
        }
        self.committed = self.sent;
        Ok(())
    }

    /// How many messages are on the queue: with units of work those that were committed.
    fn put(&mut self) -> u64 {
        match self.batch {
            Some(_) => self.committed,
            None => self.client.accepted(self.sender),
        }
    }
}

/// Reads lines, with their ends, until there are no more or the receiver is gone.
fn read_lines(
    mut input: impl BufRead,
    mut take: impl FnMut(Vec<u8>) -> bool,
) -> std::io::Result<()> {
    loop {
        let mut line = Vec::new();
        if input.read_until(b'\n', &mut line)? == 0 || !take(line) {
            return Ok(());
        }
    }
}

fn is_standard_input(file: &Path) -> bool {
    file.as_os_str() == "-"
}

fn standard_input() -> Result<Bytes, Failure> {
    let mut body = Vec::new();
    std::io::stdin().lock().read_to_end(&mut body)?;
    // What `echo` adds is not part of the message.
    if body.last() == Some(&b'\n') && body.iter().filter(|byte| **byte == b'\n').count() == 1 {
        body.pop();
    }
    Ok(Bytes::from(body))
}

fn content(file: &Path) -> Result<Bytes, Failure> {
    let body = std::fs::read(file).map_err(|error| Failure::about(file.display(), error))?;
    Ok(Bytes::from(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_keep_their_type_unless_quoted() {
        let value = |text: &str| property(text).unwrap().1;
        assert_eq!(value("a=true"), Property::Boolean(true));
        assert_eq!(value("a=-5"), Property::Long(-5));
        assert_eq!(value("a=2.5"), Property::Double(2.5));
        assert_eq!(value("a='5'"), Property::Text("5".into()));
        assert_eq!(value("a=nan"), Property::Text("nan".into()));
        assert_eq!(value("a=b=c"), Property::Text("b=c".into()));
        assert_eq!(value("a="), Property::Text(String::new()));
        assert!(property("=x").is_err());
        assert!(property("x").is_err());
    }
}
