//! Access to the local socket in the data folder. By the mode of the file its owner can open it,
//! and the members of `users.local_group` if there is one. The kernel names the user of each
//! connection (SO_PEERCRED): a socket that was made open to others by accident does not make them
//! administrators.
//!
//! Judged when a connection is accepted, so it also holds for clients that this instance relays to
//! the active one of its group.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use nix::unistd::Group;

/// The rule of one local socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalAccess {
    /// The user that runs this process.
    uid: u32,
    /// The group with access, if there is one.
    group: Option<u32>,
}

/// What a process on the local socket may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalRight {
    /// Everything that the user of this process could do.
    Owner,
    /// Administer.
    Member,
    /// Nothing.
    None,
}

const ROOT: u32 = 0;

impl LocalAccess {
    /// For this process, and the members of `group`.
    ///
    /// # Errors
    /// There is no such group.
    pub(crate) fn of_process(group: Option<&str>) -> Result<LocalAccess, String> {
        let uid = rustix::process::geteuid().as_raw();
        let Some(name) = group else { return Ok(LocalAccess { uid, group: None }) };
        match Group::from_name(name) {
            Ok(Some(group)) => Ok(LocalAccess { uid, group: Some(group.gid.as_raw()) }),
            Ok(None) => {
                Err(format!("users.local_group = '{name}': this machine has no such group"))
            }
            Err(error) => Err(format!("users.local_group = '{name}': {error}")),
        }
    }

    /// What a process of the user `uid` may do that has opened the socket.
    pub(crate) fn right_of(self, uid: u32) -> LocalRight {
        match self.group {
            _ if uid == self.uid || uid == ROOT => LocalRight::Owner,
            // No other user can open it.
            Some(_) => LocalRight::Member,
            None => LocalRight::None,
        }
    }

    /// Sets the modes of the socket and its folder: access for these users, and for no other.
    pub(crate) fn open_to(self, socket: &Path) -> io::Result<()> {
        let mode = if self.group.is_some() { 0o660 } else { 0o600 };
        if let Some(group) = self.group {
            chown(socket, None, Some(group))?;
            if let Some(folder) = socket.parent() {
                chown(folder, None, Some(group))?;
                // To pass through to the socket, not to read what is there.
                let old = folder.metadata()?.mode() & 0o7707;
                std::fs::set_permissions(folder, PermissionsExt::from_mode(old | 0o010))?;
            }
        }
        std::fs::set_permissions(socket, PermissionsExt::from_mode(mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_the_process_and_root_may_everything_and_others_nothing() {
        let alone = LocalAccess { uid: 1_000, group: None };
        assert_eq!(alone.right_of(1_000), LocalRight::Owner);
        assert_eq!(alone.right_of(ROOT), LocalRight::Owner);
        assert_eq!(alone.right_of(1_001), LocalRight::None, "whatever the mode of the file");
        let grouped = LocalAccess { uid: 1_000, group: Some(7) };
        assert_eq!(grouped.right_of(1_000), LocalRight::Owner);
        assert_eq!(grouped.right_of(1_001), LocalRight::Member);
    }

    #[test]
    fn a_group_that_does_not_exist_is_refused() {
        let why = LocalAccess::of_process(Some("no-such-group-here")).unwrap_err();
        assert!(why.contains("no such group"), "{why}");
    }

    #[test]
    fn the_socket_is_its_owners_only_unless_there_is_a_group() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        std::fs::set_permissions(&data, PermissionsExt::from_mode(0o700)).unwrap();
        let socket = data.join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let modes = || [&socket, &data].map(|path| std::fs::metadata(path).unwrap().mode() & 0o777);
        LocalAccess::of_process(None).unwrap().open_to(&socket).unwrap();
        assert_eq!(modes(), [0o600, 0o700]);
        let uid = rustix::process::geteuid().as_raw();
        let group = Some(rustix::process::getegid().as_raw());
        LocalAccess { uid, group }.open_to(&socket).unwrap();
        assert_eq!(modes(), [0o660, 0o710]);
    }
}
