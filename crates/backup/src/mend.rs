//! Repairing a log at rest from the newest point of a backup.
//!
//! Not here: how a log is repaired (`towline_log::mend`).

use std::path::Path;
use std::sync::Arc;

use towline_log::mend::{MendReport, mend};
use towline_log::{Disk, LinuxDisk};

use crate::error::BackupError;
use crate::folder::Backup;

/// Mends the log in `folder`, which no process uses, from the newest point of a backup.
///
/// # Errors
/// As [`towline_log::mend::mend_from_log`]; the backup cannot be read.
pub fn mend_from_backup(
    folder: &Path,
    from: &Path,
    wanted: &[u64],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<MendReport, BackupError> {
    let source = Backup::look(from)?.newest_log()?;
    let target: Arc<dyn Disk> = Arc::new(LinuxDisk::open(folder)?);
    Ok(mend(&target, &source, wanted, progress)?)
}
