//! Whether other users could change the data folder. A start creates it for its owner alone. One
//! that existed before may belong to another user, and a user with write access can replace files,
//! links and the socket in it.
//!
//! It reports, and refuses nothing: on some volumes and shared folders the owner is set by others.

use std::path::Path;

use towline_admin::catalogue::FOLDER_OPEN;
use towline_logging::log;
use towline_os::fs::{self, Metadata, MetadataExt};

const ROOT: u32 = 0;
/// The bit of a file mode that lets all users write.
const ALL_WRITE: u32 = 0o002;

/// Reports folders that others could change.
pub(crate) fn report(folders: [&Path; 2]) {
    for folder in folders {
        if let Some(why) = fs::metadata(folder).ok().and_then(|metadata| openness(&metadata)) {
            log(&FOLDER_OPEN, &[&folder.display().to_string(), &why]);
        }
    }
}

/// Why other users could change the content of a folder.
fn openness(folder: &Metadata) -> Option<String> {
    let (owner, own) = (folder.uid(), rustix::process::geteuid().as_raw());
    if folder.mode() & ALL_WRITE != 0 {
        Some("all users may write into it".to_owned())
    } else if owner != own && owner != ROOT {
        Some(format!("it belongs to user id {owner}, and this process runs as {own}"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn a_folder_that_others_could_change_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let found = |mode: u32| {
            std::fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
            openness(&fs::metadata(folder.path()).unwrap())
        };
        assert_eq!([0o700, 0o710, 0o750, 0o770].map(found), [const { None }; 4]);
        assert_eq!(found(0o777).as_deref(), Some("all users may write into it"));
        assert_eq!(found(0o755), None);
        if chown(folder.path(), Some(12_345), None).is_ok() {
            assert!(found(0o755).unwrap().contains("user id 12345"), "only root may try this");
        }
    }
}
