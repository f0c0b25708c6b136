//! `towline put`: messages from an argument, files or standard input, in units of work when asked.
//!
//! Ends well only when every message was accepted; it does not try again.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::Path;

use bytes::Bytes;
use towline_client::{Body, Client, Message, Property, Sender, Unit};

use crate::arguments::Put;
use crate::failure::Failure;
use crate::{progress, show};

/// Messages that may be on their way without an outcome.
const WINDOW: usize = 256;

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
    let mut putter = Putter {
        client: &mut client,
        sender,
        pattern,
        batch: arguments.transaction,
        unit: None,
        put: 0,
        bar: progress::bar(total, arguments.reach.json),
    };
    putter.all(arguments)?;
    let put = putter.finish()?;
    client.close()?;
    if arguments.reach.json {
        show::json(&serde_json::json!({ "queue": arguments.queue, "put": put }))
    } else {
        let plural = if put == 1 { "" } else { "s" };
        show::line(&format!("{put} message{plural} put to {}", arguments.queue))
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
        return Err(Failure::Usage(format!("--property {text}: NAME=VALUE was expected")));
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
    put: u64,
    bar: indicatif::ProgressBar,
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
                let message = "--count with --lines needs files: standard input comes once";
                return Err(Failure::Usage(message.into()));
            }
            return self.each_line(std::io::stdin().lock());
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

    fn each_line(&mut self, mut input: impl BufRead) -> Result<(), Failure> {
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line)? > 0 {
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            self.one(&Bytes::copy_from_slice(text))?;
            line.clear();
        }
        Ok(())
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
        self.pattern.body = match std::str::from_utf8(body) {
            Ok(text) => Body::Text(text.into()),
            Err(_) => Body::Bytes(body.clone()),
        };
        if self.batch.is_some() && self.unit.is_none() {
            self.unit = Some(self.client.declare()?);
        }
        self.client.send(self.sender, &self.pattern, self.unit.as_ref())?;
        self.client.settle_to(self.sender, WINDOW)?;
        self.put = self.put.saturating_add(1);
        self.bar.inc(1);
        if self.batch.is_some_and(|batch| self.put.is_multiple_of(batch)) {
            self.commit()?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.client.settle_to(self.sender, 0)?;
        if let Some(unit) = self.unit.take() {
            self.client.commit(unit)?;
        }
        Ok(())
    }

    /// Waits for what is on its way; gives the count of messages put.
    fn finish(&mut self) -> Result<u64, Failure> {
        self.commit()?;
        self.bar.finish_and_clear();
        Ok(self.put)
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
