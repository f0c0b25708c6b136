//! Structured logs on standard error. Each event that an operator may have to act on is a message
//! of the catalogue (docs/reference/messages.md), with its `id`; others are for developers only.
//!
//! Messages that a client can cause as often as it likes go through [`log_seldom`]: a flood of them
//! would fill the disk and hide the others.
//!
//! Invariant: a level that is not understood is refused; it never silences anything.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use towline_admin::catalogue::{Entry, MESSAGES_LEFT_OUT, Severity};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

const LEVELS: [(&str, LevelFilter); 5] = [
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];
const LEVEL_DEFAULT: LevelFilter = LevelFilter::INFO;
/// The variable that sets the level, whatever the configuration says.
const LEVEL_VARIABLE: &str = "TOWLINE_LOG";
const FORMAT_VARIABLE: &str = "TOWLINE_LOG_FORMAT";

/// Messages of one id that are written in a window; the others are counted.
const BURST: u64 = 10;
/// How long a window lasts: a flood writes ten lines a minute.
const WINDOW: Duration = Duration::from_secs(60);

/// A variable of the environment that is not understood.
#[derive(Debug)]
pub struct BadVariable {
    /// Its name.
    pub name: &'static str,
    /// What stands in it.
    pub value: String,
    /// What may stand in it.
    pub why: String,
}

/// Puts another level in force.
type SetLevel = Box<dyn Fn(Targets) -> Result<(), String> + Send + Sync>;
static SET_LEVEL: OnceLock<SetLevel> = OnceLock::new();

/// Starts logging: text, or JSON with `TOWLINE_LOG_FORMAT=json`; level from `TOWLINE_LOG`
/// (default `info`). A second call changes nothing.
///
/// # Errors
/// A variable that is not understood; logging has been started at `info` all the same.
pub fn start() -> Result<(), BadVariable> {
    let (chosen, refused) = match variable(LEVEL_VARIABLE, level) {
        Ok(chosen) => (chosen, None),
        Err(bad) => (None, Some(bad)),
    };
    let filter = chosen.unwrap_or_else(|| Targets::new().with_default(LEVEL_DEFAULT));
    let json = variable(FORMAT_VARIABLE, is_json);
    let (filter, handle) = reload::Layer::new(filter);
    let set: SetLevel = Box::new(move |to| handle.reload(to).map_err(|why| why.to_string()));
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // Files and pipes get plain text: escapes there are only in the way of a search.
        .with_ansi(std::io::stderr().is_terminal() && !no_color(std::env::var_os("NO_COLOR")))
        .with_target(false);
    let started = if matches!(json, Ok(Some(true))) {
        tracing_subscriber::registry().with(filter).with(layer.json()).try_init()
    } else {
        tracing_subscriber::registry().with(filter).with(layer).try_init()
    };
    match started {
        Ok(()) => {
            SET_LEVEL.get_or_init(|| set);
        }
        Err(_) => tracing::debug!("logging was started before"),
    }
    json.and(refused.map_or(Ok(()), Err))
}

/// Whether the variables of the environment are understood, without doing anything.
///
/// # Errors
/// The first that is not.
pub fn check() -> Result<(), BadVariable> {
    variable(LEVEL_VARIABLE, level)?;
    variable(FORMAT_VARIABLE, is_json)?;
    Ok(())
}

/// The value of a variable, as `understand` reads it; `None` when it is not set.
fn variable<T>(
    name: &'static str,
    understand: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, BadVariable> {
    understood(name, std::env::var_os(name), understand)
}

/// The same of a value. An empty one is none: files of services set variables to nothing.
fn understood<T>(
    name: &'static str,
    value: Option<std::ffi::OsString>,
    understand: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, BadVariable> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    let value = value.to_string_lossy().into_owned();
    match understand(&value) {
        Ok(understood) => Ok(Some(understood)),
        Err(why) => Err(BadVariable { name, value, why }),
    }
}

/// Whether colours are not wanted: https://no-color.org, any value but an empty one.
fn no_color(value: Option<std::ffi::OsString>) -> bool {
    value.is_some_and(|value| !value.is_empty())
}

fn is_json(text: &str) -> Result<bool, String> {
    match text {
        "json" => Ok(true),
        "text" => Ok(false),
        _ => Err("there are text and json".into()),
    }
}

/// A level, or several for single modules: `warn`, `info,towline_server=debug`. Without one for
/// all, that is `info`: a level for one module must not silence the others.
///
/// # Errors
/// What is allowed.
pub fn level(text: &str) -> Result<Targets, String> {
    let wrong = || {
        format!(
            "there are {}, and with commas levels of single modules as in info,towline_server=debug",
            LEVELS.map(|(name, _)| name).join(", ")
        )
    };
    let mut levels = Targets::new().with_default(LEVEL_DEFAULT);
    for part in text.split(',').map(str::trim) {
        let (module, level) = match part.split_once('=') {
            Some((module, level)) => (Some(module.trim()), level.trim()),
            None => (None, part),
        };
        let known = LEVELS.iter().find(|(name, _)| name.eq_ignore_ascii_case(level));
        let (_, level) = known.ok_or_else(wrong)?;
        match module {
            None => levels = levels.with_default(*level),
            Some(module) => {
                let fits = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
                if module.is_empty() || !module.chars().all(fits) {
                    return Err(wrong());
                }
                levels = levels.with_target(module, *level);
            }
        }
    }
    Ok(levels)
}

/// Puts the level of the configuration in force, unless the environment names one.
///
/// # Errors
/// What is allowed.
pub fn set_level(configured: Option<&str>) -> Result<(), String> {
    if std::env::var_os(LEVEL_VARIABLE).is_some() {
        return Ok(());
    }
    let filter = match configured {
        Some(configured) => level(configured)?,
        None => Targets::new().with_default(LEVEL_DEFAULT),
    };
    match SET_LEVEL.get() {
        Some(set) => set(filter),
        // Another program, such as a test, has logging of its own.
        None => Ok(()),
    }
}

/// Logs a message of the catalogue with its parameters filled in, at the level of its severity.
///
/// # Panics
/// When there are more or fewer values than parameters.
pub fn log(entry: &Entry, values: &[&str]) {
    let (id, text) = (entry.id, entry.text(values));
    match entry.severity() {
        Severity::Information => tracing::info!(id, "{text}"),
        Severity::Warning => tracing::warn!(id, "{text}"),
        Severity::Error => tracing::error!(id, "{text}"),
    }
}

/// The same for what others can cause as often as they like: ten a minute of each id are written,
/// then how many were left out.
///
/// # Panics
/// When there are more or fewer values than parameters.
pub fn log_seldom(entry: &Entry, values: &[&str]) {
    static SELDOM: LazyLock<Mutex<Seldom>> = LazyLock::new(Mutex::default);
    let verdict = SELDOM.lock().judge(entry.id, Instant::now());
    let Some(left_out) = verdict else { return };
    if left_out > 0 {
        log(&MESSAGES_LEFT_OUT, &[&left_out.to_string(), entry.id]);
    }
    log(entry, values);
}

/// What was written and left out, by id.
#[derive(Debug, Default)]
struct Seldom {
    windows: HashMap<&'static str, Window>,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    written: u64,
    left_out: u64,
}

impl Seldom {
    /// Whether a message is written, and then how many were left out before it.
    fn judge(&mut self, id: &'static str, now: Instant) -> Option<u64> {
        let new = || Window { began: now, written: 0, left_out: 0 };
        let window = self.windows.entry(id).or_insert_with(new);
        let mut left_out = 0;
        if now.saturating_duration_since(window.began) >= WINDOW {
            left_out = window.left_out;
            *window = new();
        }
        if window.written >= BURST {
            window.left_out += 1;
            return None;
        }
        window.written += 1;
        Some(left_out)
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn an_empty_variable_is_as_if_it_were_not_set() {
        for value in [None, Some("".into())] {
            assert!(understood(LEVEL_VARIABLE, value.clone(), level).unwrap().is_none());
            assert!(understood(FORMAT_VARIABLE, value, is_json).unwrap().is_none());
        }
        assert!(understood(LEVEL_VARIABLE, Some("inof".into()), level).is_err());
        assert!(understood(LEVEL_VARIABLE, Some(" ".into()), level).is_err());
    }

    #[test]
    fn colours_are_left_out_where_they_are_not_wanted() {
        assert!(no_color(Some("1".into())));
        assert!(!no_color(None) && !no_color(Some("".into())));
    }

    #[test]
    fn a_level_that_is_not_known_is_refused_with_those_that_are() {
        for wrong in ["inof", "", "info,", "towline_server=inof", "=info", "off", "a b=info", "1"] {
            let why = level(wrong).unwrap_err();
            assert!(why.contains("error, warn, info, debug, trace"), "{wrong}: {why}");
        }
        for right in ["info", "WARN", "info,towline_server=debug", "towline_log::writer=trace"] {
            assert!(level(right).is_ok(), "{right}");
        }
    }

    #[test]
    fn a_level_for_one_module_leaves_the_others_at_info() {
        let levels = level("towline_log=trace").unwrap();
        let logs = |module, level| levels.would_enable(module, &level);
        assert!(logs("towline_log::writer", Level::TRACE));
        assert!(logs("towline_server", Level::INFO) && !logs("towline_server", Level::DEBUG));
    }

    #[test]
    fn a_flood_writes_ten_a_minute_and_says_how_many_it_left_out() {
        let (mut seldom, start) = (Seldom::default(), Instant::now());
        let written = |seldom: &mut Seldom, at| seldom.judge("TWL3005W", at);
        let first: Vec<_> = (0..1_000).map(|_| written(&mut seldom, start)).collect();
        assert!(first[..10].iter().all(|one| *one == Some(0)));
        assert!(first[10..].iter().all(Option::is_none));
        assert_eq!(seldom.judge("TWL3009W", start), Some(0), "each id has its own window");
        assert_eq!(written(&mut seldom, start + WINDOW), Some(990));
        assert_eq!(written(&mut seldom, start + WINDOW), Some(0), "told once");
    }
}
