//! A group of one instance, as a child process on loopback.
//!
//! Not here: clients, and what it must keep.

use std::process::Command;

use super::LINKS_PORT;
use super::lease::Lease;
use crate::daemon::{Site, said};
use crate::{Try, paths, require};

/// See the module.
pub struct GroupOfOne {
    /// Its folder and its commands; nothing runs there at first.
    pub site: Site,
    /// What makes the configuration one of this group: to be left out for a queue manager of none.
    pub section: String,
    _lease: Lease,
}

impl GroupOfOne {
    /// One of which nothing runs; `config` is more of its configuration.
    ///
    /// # Errors
    /// When its files cannot be made.
    pub fn plan(config: &str) -> Try<GroupOfOne> {
        let lease = Lease::take()?;
        let mut site = Site::open()?;
        let papers = site.scratch().join("papers");
        let mut command = Command::new(paths::towline()?);
        command.args(["group", "certificates", "--name", "QM1", "--group", "G"]);
        let output = command.args(["--instances", "a", "--out"]).arg(&papers).output()?;
        require!(output.status.success(), "certificates: {}", said(&output));
        let (papers, address) = (papers.display(), lease.address(0));
        let section = format!(
            "[group]\nname = \"G\"\ninstance = \"a\"\nheartbeat_interval_ms = 100\n\
             heartbeat_timeout_ms = 1500\ncertificate = \"{papers}/a.pem\"\n\
             private_key = \"{papers}/a-key.pem\"\nauthorities = \"{papers}/authority.pem\"\n\n\
             [[group.member]]\nname = \"a\"\naddress = \"{address}:{LINKS_PORT}\"\n"
        );
        site.config = format!("{config}\n{section}");
        Ok(GroupOfOne { site, section, _lease: lease })
    }

    /// Path of its configuration, once it was started.
    #[must_use]
    pub fn config(&self) -> String {
        self.site.scratch().join("towline.toml").display().to_string()
    }
}
