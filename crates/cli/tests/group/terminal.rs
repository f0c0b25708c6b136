//! A terminal without a user.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

/// A program on a terminal.
pub(crate) struct Terminal {
    ours: File,
    /// Keeps the terminal alive when the program is gone.
    theirs: OwnedFd,
    pub(crate) child: Child,
    pub(crate) seen: String,
    /// Up to where of it was looked for something.
    looked: usize,
}

impl Terminal {
    pub(crate) fn start(mut command: Command) -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
        let stdio = || Stdio::from(theirs.try_clone().unwrap());
        let child = command.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().unwrap();
        Terminal { ours: File::from(ours), theirs, child, seen: String::new(), looked: 0 }
    }

    /// Reads on until `text` was drawn behind what was found before: how much comes with one read
    /// is chance.
    pub(crate) fn until(&mut self, text: &str) {
        let mut bytes = [0; 4096];
        loop {
            if let Some(at) = self.seen[self.looked..].find(text) {
                self.looked += at + text.len();
                return;
            }
            let count = self.ours.read(&mut bytes).unwrap();
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }

    pub(crate) fn key(&mut self, key: u8) {
        self.ours.write_all(&[key]).unwrap();
    }

    /// Whether the terminal shows what is typed, line by line.
    pub(crate) fn is_as_ever(&self) -> bool {
        let modes = tcgetattr(&self.theirs).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
