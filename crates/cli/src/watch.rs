//! A view that is redrawn, until q or Ctrl-C; without a terminal, one block after the
//! other. What is shown comes from the caller; plain ANSI sequences.
//!
//! Invariants: the terminal is put right on every way out but a kill; a look that hangs does not
//! keep the user from leaving.

use std::io::{self, IsTerminal, Read, Stdin, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use towline_types::printable;

use crate::failure::Failure;
use crate::show;
use crate::signals::{self, SignalMeaning};

/// Rows of a terminal that does not say how many it has.
const ROWS: usize = 24;
/// Another screen, no cursor, no wrapping of long lines.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// What Ctrl-C and Ctrl-D are when the terminal makes no signals of them.
const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;

/// How it is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// Between two looks.
    pub(crate) interval: Duration,
    /// A line each time, for programs.
    pub(crate) json: bool,
}

/// Shows what `look` gives, again and again. Only the first failure ends it: later ones are shown,
/// for an instance that changes its role is away for a moment.
pub(crate) fn run(
    view: View,
    mut look: impl FnMut() -> Result<String, Failure> + Send + 'static,
) -> Result<(), Failure> {
    let first = look()?;
    if view.json || !io::stdout().is_terminal() {
        return one_after_the_other(view, &first, look);
    }
    on_a_screen(view, first, look)
}

fn one_after_the_other(
    view: View,
    first: &str,
    mut look: impl FnMut() -> Result<String, Failure>,
) -> Result<(), Failure> {
    show::lines(first)?;
    loop {
        // A pause and nothing else: no thread unparks this one.
        thread::park_timeout(view.interval);
        match look() {
            Ok(text) if view.json => show::lines(&text)?,
            Ok(text) => show::lines(&format!("\n{text}"))?,
            Err(failure) => {
                failure.report(view.json);
            }
        }
    }
}

enum ViewEvent {
    Key(u8),
    Signal(SignalMeaning),
    Looked(Result<String, Failure>),
}

fn on_a_screen(
    view: View,
    first: String,
    mut look: impl FnMut() -> Result<String, Failure> + Send + 'static,
) -> Result<(), Failure> {
    let (tell, events) = channel();
    let told = tell.clone();
    signals::listen(move |signal| told.send(ViewEvent::Signal(signal)).is_ok())?;
    let screen = Screen::enter()?;
    if screen.input.is_some() {
        let told = tell.clone();
        thread::Builder::new().name("keys".into()).spawn(move || keys(&told))?;
    }
    let (ask, asked) = channel::<()>();
    thread::Builder::new().name("looks".into()).spawn(move || {
        while asked.recv().is_ok() {
            if tell.send(ViewEvent::Looked(look())).is_err() {
                return;
            }
        }
    })?;
    let last = redraw(view, first, &events, &ask);
    drop(screen);
    // What was seen last stays to be read.
    show::lines(&last?)
}

/// Draws until it is asked to end; gives what was shown last.
fn redraw(
    view: View,
    first: String,
    events: &Receiver<ViewEvent>,
    ask: &Sender<()>,
) -> Result<String, Failure> {
    let mut text = first;
    let every = format!("every {} s, q ends", view.interval.as_secs_f64());
    let mut note = every.clone();
    let mut top = 0;
    // None: the user looks now.
    let mut due = Some(Instant::now() + view.interval);
    loop {
        let rows = rows();
        let page = rows.saturating_sub(2).max(1);
        top = draw((&text, top), &note, rows)?;
        let wait = due.map_or(view.interval, |at| at.saturating_duration_since(Instant::now()));
        match events.recv_timeout(wait) {
            Ok(
                ViewEvent::Key(b'q' | b'Q' | CTRL_C | CTRL_D)
                | ViewEvent::Signal(SignalMeaning::End),
            )
            | Err(RecvTimeoutError::Disconnected) => return Ok(text),
            Ok(ViewEvent::Key(key)) => top = scrolled(top, key, page),
            Ok(ViewEvent::Signal(SignalMeaning::Resized)) => {}
            Ok(ViewEvent::Looked(seen)) => {
                due = Some(Instant::now() + view.interval);
                match seen {
                    Ok(seen) => {
                        text = seen;
                        note.clone_from(&every);
                    }
                    Err(failure) => note = format!("{every}; not now: {}", failure.reason()),
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                if due.take().is_some() {
                    // It is gone only when we are.
                    ask.send(()).ok();
                }
            }
        }
    }
}

fn keys(tell: &Sender<ViewEvent>) {
    for byte in io::stdin().lock().bytes() {
        let Ok(byte) = byte else { return };
        if tell.send(ViewEvent::Key(byte)).is_err() {
            return;
        }
    }
}

/// The first line that is shown after a key. Arrow keys send ESC [ A and B, the keys for pages ESC
/// [ 5 ~ and 6 ~; what else they send means nothing here.
fn scrolled(top: usize, key: u8, page: usize) -> usize {
    match key {
        b'B' | b'j' => top.saturating_add(1),
        b'A' | b'k' => top.saturating_sub(1),
        b'6' | b' ' => top.saturating_add(page),
        b'5' | b'b' => top.saturating_sub(page),
        _ => top,
    }
}

/// Rows of the screen.
fn rows() -> usize {
    let rows = tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_row));
    if rows == 0 { ROWS } else { rows }
}

/// Draws from line `top` on, or from the last one that leaves no row empty; gives which it was.
fn draw((text, top): (&str, usize), note: &str, rows: usize) -> Result<usize, Failure> {
    let top = top.min(text.lines().count().saturating_sub(rows.saturating_sub(1)));
    let mut output = io::stdout().lock();
    // At once, so that nothing half drawn is seen.
    output.write_all(frame((text, top), note, rows).as_bytes())?;
    output.flush()?;
    Ok(top)
}

/// The bytes that draw a text from a line on, and a note below it, on a screen of so many rows.
fn frame((text, top): (&str, usize), note: &str, rows: usize) -> String {
    let room = rows.saturating_sub(1);
    let lines: Vec<&str> = text.lines().skip(top).collect();
    let mut bytes = String::from("\x1b[H");
    for line in lines.iter().take(room) {
        // Before the line: behind one that is as wide as the screen the cursor stands on its last
        // column, and that would be wiped away.
        bytes.push_str("\x1b[K");
        bytes.push_str(line);
        bytes.push_str("\r\n");
    }
    // What is left of the frame before, from here to the end of the screen.
    bytes.push_str("\x1b[J");
    let below = lines.len().saturating_sub(room);
    if below + top > 0 {
        bytes.push_str(&format!("({} lines more: arrow keys) ", below + top));
    }
    bytes.push_str(&printable(note));
    bytes
}

/// The terminal while we draw on it.
struct Screen {
    /// How its input was, when it has one.
    input: Option<(Stdin, Termios)>,
}

impl Screen {
    fn enter() -> Result<Screen, Failure> {
        let stdin = io::stdin();
        let input = if stdin.is_terminal() {
            let before = tcgetattr(&stdin).map_err(Failure::failed)?;
            let mut raw = before.clone();
            raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
            raw.special_codes[SpecialCodeIndex::VMIN] = 1;
            raw.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(&stdin, OptionalActions::Flush, &raw).map_err(Failure::failed)?;
            Some((stdin, before))
        } else {
            None
        };
        let screen = Screen { input };
        let mut output = io::stdout().lock();
        output.write_all(ENTER.as_bytes())?;
        output.flush()?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut output = io::stdout().lock();
        // When the terminal is gone there is nothing to put right.
        output.write_all(LEAVE.as_bytes()).and_then(|()| output.flush()).ok();
        if let Some((stdin, before)) = &self.input {
            tcsetattr(stdin, OptionalActions::Flush, before).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_overwrites_the_one_before_and_clears_what_is_left_of_it() {
        let frame = frame(("one\ntwo\n", 0), "note", 24);
        assert_eq!(frame, "\x1b[H\x1b[Kone\r\n\x1b[Ktwo\r\n\x1b[Jnote");
    }

    #[test]
    fn a_frame_never_has_more_lines_than_the_screen() {
        let frame = frame(("1\n2\n3\n4\n5\n", 0), "note", 3);
        assert_eq!(frame.matches('\n').count(), 2);
        assert!(frame.contains("(3 lines more: arrow keys) note"), "{frame:?}");
        assert!(super::frame(("1\n2", 0), "note", 0).contains("(2 lines more"));
    }

    #[test]
    fn nothing_is_wiped_behind_a_line_as_wide_as_the_screen() {
        let wide = "x".repeat(80);
        assert!(frame((&wide, 0), "note", 24).contains(&format!("{wide}\r\n")));
    }

    #[test]
    fn what_does_not_fit_is_reached_by_keys() {
        let seen = frame(("1\n2\n3\n4\n5\n", 2), "note", 3);
        assert!(seen.contains("\x1b[K3\r\n\x1b[K4\r\n\x1b[J(3 lines more"), "{seen:?}");
        let keys = [(b'B', 4), (b'j', 4), (b'A', 2), (b'k', 2), (b' ', 13), (b'5', 0), (b'[', 3)];
        for (key, top) in keys {
            assert_eq!(scrolled(3, key, 10), top, "{key}");
        }
    }

    #[test]
    fn a_note_cannot_command_the_terminal() {
        assert!(!frame(("", 0), "a\x1b[2Jb", 24).contains("\x1b[2J"));
    }
}
