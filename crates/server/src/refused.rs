//! Why a queue manager did not run, as one message of the catalogue. Only texts.

use std::path::PathBuf;

use towline_admin::Message;
use towline_admin::catalogue::{
    CONFIGURATION_REFUSED, ENVIRONMENT_REFUSED, FOLDER_IN_USE, LISTEN_FAILED, LOG_DAMAGED,
    MESSAGES_MISSING, NEWER_FORMAT, OTHER_NAME, RESTORE_UNFINISHED, START_FAILED, SYSTEM_REFUSED,
    TLS_REFUSED,
};
use towline_log::LogError;

use towline_config::ConfigError;
use towline_engine::StartError;
use towline_logging::BadVariable;

/// Why the queue manager did not run. Its text is one line, with the id of the catalogue.
#[derive(Debug)]
pub enum RunError {
    /// The configuration was refused, or something that it names cannot be used.
    Config {
        /// The file; `None` when there is none.
        file: Option<PathBuf>,
        /// Why.
        error: ConfigError,
    },
    /// A variable of the environment is not understood.
    Environment(BadVariable),
    /// The TLS settings of a listener cannot be used.
    Tls(String),
    /// The data folder cannot be started from.
    Start {
        /// The queue manager.
        name: Box<str>,
        /// Which folder.
        data: Box<std::path::Path>,
        /// Why.
        error: StartError,
    },
    /// Another instance is active on a shared data folder.
    InUse {
        /// Which folder.
        data: PathBuf,
        /// The active instance, host:pid.
        holder: String,
    },
    /// An address cannot be listened on.
    Listen {
        /// Which.
        address: String,
        /// Why.
        error: std::io::Error,
    },
    /// The operating system refused a thread or a signal handler.
    System(std::io::Error),
}

impl RunError {
    fn message(&self) -> Message {
        match self {
            RunError::Config { file, error } => {
                let file = file.as_ref().map(|file| file.display().to_string());
                let file = file.unwrap_or_else(|| "of the command line".to_owned());
                CONFIGURATION_REFUSED.message(&[&file, &error.to_string()])
            }
            RunError::Tls(why) => TLS_REFUSED.message(&[why]),
            RunError::Start {
                data, error: StartError::Log(LogError::Locked { pid, .. }), ..
            } => {
                let process = pid.map(|pid| format!("process {pid}"));
                let process = process.unwrap_or_else(|| "another process".to_owned());
                FOLDER_IN_USE.message(&[&data.display().to_string(), &process])
            }
            RunError::Start { error: StartError::Log(LogError::Damaged(finding)), .. } => {
                LOG_DAMAGED.message(&[&finding.to_string()])
            }
            RunError::Start { error: StartError::MissingExtents(lacking), .. } => {
                MESSAGES_MISSING.message(&[&lacking.messages().to_string(), &lacking.to_string()])
            }
            RunError::Start {
                error: StartError::Log(LogError::Version { file, found, supported }),
                ..
            } => {
                let found = format!("format version {found}");
                NEWER_FORMAT.message(&[file, &found, &supported.to_string()])
            }
            RunError::Start { error: StartError::Newer { place, found, known }, .. } => {
                NEWER_FORMAT.message(&[place, found, known])
            }
            RunError::Start { error: StartError::Log(LogError::Restoring { folder }), .. } => {
                RESTORE_UNFINISHED.message(&[folder])
            }
            RunError::Start { data, error: StartError::OtherName { theirs, ours }, .. } => {
                OTHER_NAME.message(&[&data.display().to_string(), theirs, ours])
            }
            RunError::Environment(BadVariable { name, value, why }) => {
                ENVIRONMENT_REFUSED.message(&[name, value, why])
            }
            RunError::Start { name, data, error } => {
                START_FAILED.message(&[name, &format!("{}: {error}", data.display())])
            }
            RunError::InUse { data, holder } => {
                FOLDER_IN_USE.message(&[&data.display().to_string(), holder])
            }
            RunError::Listen { address, error } => {
                LISTEN_FAILED.message(&[address, &error.to_string()])
            }
            RunError::System(error) => SYSTEM_REFUSED.message(&[&error.to_string()]),
        }
    }
}

impl std::fmt::Display for RunError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", self.message())
    }
}

impl std::error::Error for RunError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(error: StartError) -> String {
        RunError::Start { name: "QM1".into(), data: std::path::Path::new("d").into(), error }
            .to_string()
    }

    #[test]
    fn every_reason_is_one_line_with_its_id() {
        let io = || std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let config = towline_config::Config::parse("[limits\n").unwrap_err();
        let file = Some(PathBuf::from("t.toml"));
        let locked = LogError::Locked { folder: "d/log".into(), pid: Some(7) };
        let texts = [
            RunError::Config { file, error: config }.to_string(),
            RunError::Tls("certificate x: none".into()).to_string(),
            start(StartError::Log(locked)),
            start(StartError::Folder(io())),
            start(StartError::Newer {
                place: "image-1".into(),
                found: "format version 9".into(),
                known: "2".into(),
            }),
            start(StartError::Log(LogError::Restoring { folder: "d/log".into() })),
            RunError::Listen { address: "127.0.0.1:1".into(), error: io() }.to_string(),
            RunError::System(io()).to_string(),
        ];
        for text in &texts {
            assert!(text.starts_with("TWL1") && text.lines().count() == 1, "{text}");
        }
        assert_eq!(texts[2], "TWL1011E: Data folder d is in use by process 7.");
        assert!(texts[0].contains("t.toml is refused: line 1: "), "{}", texts[0]);
    }
}
