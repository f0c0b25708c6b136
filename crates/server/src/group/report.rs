//! What an instance answers an operator's question in the name of another one, which does not run:
//! the group as it sees it, and where it stands itself.
//!
//! Not here: the way of the question (`link::ask`), and what follows (the command).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use towline_admin::status::GroupStatus;

use towline_config::GroupConfig;
use towline_link::{self as link, LinkStream, MemberAnswer};

/// Where a member stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stand {
    /// Its term.
    pub term: u64,
    /// Whether it gives votes.
    pub may_vote: bool,
    /// Index of the last batch of its log.
    pub last_index: u64,
    /// Term of that batch.
    pub last_term: u64,
    /// Index of the newest batch that it knows to be committed.
    pub committed: u64,
}

impl Stand {
    /// Which of two logs is the longer one, as an election sees it.
    #[must_use]
    pub fn log(&self) -> (u64, u64) {
        (self.last_term, self.last_index)
    }
}

/// The answer of an instance that was reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The group as it sees it.
    pub group: GroupStatus,
    /// Where it stands.
    pub stand: Stand,
}

/// The answer of one instance.
#[derive(Debug)]
pub struct Answer {
    /// Its name.
    pub instance: String,
    /// Its report, or why there is none.
    pub told: Result<Report, String>,
}

/// Asks all other instances of the group within `longest`, in the name of the one that `config` is
/// for.
///
/// # Errors
/// When it is no member, or its certificates cannot be used.
pub fn ask_group(
    queue_manager: &str,
    config: &GroupConfig,
    longest: Duration,
) -> Result<Vec<Answer>, String> {
    let this = config.position(&config.instance);
    let this = this.ok_or_else(|| format!("'{}' is not a [[group.member]]", config.instance))?;
    let answers = link::ask(queue_manager, config, this, longest)?;
    let read = |bytes: Vec<u8>| {
        serde_json::from_slice(&bytes).map_err(|error| format!("its answer: {error}"))
    };
    let answer = |MemberAnswer { name, said }| Answer { instance: name, told: said.and_then(read) };
    Ok(answers.into_iter().map(answer).collect())
}

/// Answers with `report`, and ends the stream.
pub(super) async fn send(report: Report, mut stream: LinkStream) {
    let written = async {
        stream.write_all(&serde_json::to_vec(&report)?).await?;
        stream.shutdown().await
    };
    if let Err(error) = written.await {
        tracing::debug!(%error, "the report cannot be sent");
    }
}
