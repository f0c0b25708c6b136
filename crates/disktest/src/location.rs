//! Where a folder is: file system, mount options, and the device below with what it says of its
//! cache. From statfs, /proc/self/mountinfo and /sys/dev/block (Linux).
//!
//! Not here: what follows from it. What cannot be found out is `None`, never a guess.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use serde::Serialize;

/// What kind of file system it is, as far as a sync is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// On a device of this machine.
    Local,
    /// In memory.
    Memory,
    /// On another machine.
    Network,
    /// Served by a program.
    Fuse,
    /// A layer over another file system.
    Overlay,
    /// Not in our list.
    Unknown,
}

/// File systems by the magic number of statfs(2) (linux/magic.h), with the name shown when the
/// table of mounts has none. FUSE's number also stands for virtiofs.
const FILE_SYSTEMS: &[(u64, &str, Kind)] = &[
    (0xEF53, "ext4", Kind::Local),
    (0x5846_5342, "xfs", Kind::Local),
    (0x9123_683E, "btrfs", Kind::Local),
    (0x2FC1_2FC1, "zfs", Kind::Local),
    (0xF2F5_2010, "f2fs", Kind::Local),
    (0xCA45_1A4E, "bcachefs", Kind::Local),
    (0x0102_1994, "tmpfs", Kind::Memory),
    (0x8584_58F6, "ramfs", Kind::Memory),
    (0x6969, "nfs", Kind::Network),
    (0xFF53_4D42, "cifs", Kind::Network),
    (0xFE53_4D42, "smb2", Kind::Network),
    (0x00C3_6400, "ceph", Kind::Network),
    (0x0116_1970, "gfs2", Kind::Network),
    (0x7461_636F, "ocfs2", Kind::Network),
    (0x0BD0_0BD0, "lustre", Kind::Network),
    (0x4750_4653, "gpfs", Kind::Network),
    (0x5346_414F, "afs", Kind::Network),
    (0x0102_1997, "9p", Kind::Network),
    (0x6573_5546, "fuse", Kind::Fuse),
    (0x794C_7630, "overlay", Kind::Overlay),
];

/// Where a folder is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FolderLocation {
    pub(crate) folder: PathBuf,
    /// `ext4`, `nfs4`, `fuse.sshfs`, ...
    pub(crate) file_system: String,
    #[serde(rename = "file_system_kind")]
    pub(crate) kind: Kind,
    /// What is mounted: a device, a server.
    pub(crate) mount_source: Option<String>,
    /// Of the mount and of the file system.
    pub(crate) mount_options: Vec<String>,
    pub(crate) device: Option<Device>,
}

/// A block device, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Device {
    pub(crate) name: String,
    /// `write back` (has a volatile cache) or `write through`.
    pub(crate) write_cache: Option<String>,
    /// Whether it can force single writes past its cache.
    pub(crate) fua: Option<bool>,
    /// Whether it turns. Virtual disks often say so without.
    pub(crate) rotational: Option<bool>,
    /// Whether its cache is another computer's business: a virtual machine, a cloud.
    #[serde(rename = "virtual")]
    pub(crate) is_virtual: bool,
}

impl FolderLocation {
    /// Looks at a folder.
    ///
    /// # Errors
    /// When it is not there or not a folder.
    pub(crate) fn of(folder: &Path) -> io::Result<FolderLocation> {
        let folder = fs::canonicalize(folder)?;
        let metadata = fs::metadata(&folder)?;
        if !metadata.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        // The number has the same 32 bits everywhere; some systems extend its sign.
        let magic = rustix::fs::statfs(&folder)?.f_type.cast_unsigned() & 0xFFFF_FFFF;
        let known = FILE_SYSTEMS.iter().find(|(number, _, _)| *number == magic);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mount = mount_of(&mounts, &folder);
        let name = known.map_or_else(|| format!("0x{magic:x}"), |(_, name, _)| (*name).to_owned());
        let file_system = mount.as_ref().map_or(name, |mount| mount.file_system.clone());
        let device = device_of(metadata.dev()).or_else(|| {
            let source = fs::metadata(&mount.as_ref()?.source).ok()?;
            device_of(source.rdev())
        });
        Ok(FolderLocation {
            folder,
            file_system,
            kind: known.map_or(Kind::Unknown, |(_, _, kind)| *kind),
            mount_source: mount.as_ref().map(|mount| mount.source.clone()),
            mount_options: mount.map(|mount| mount.options).unwrap_or_default(),
            device,
        })
    }

    /// Whether one of the mount options is `option`.
    pub(crate) fn has_option(&self, option: &str) -> bool {
        self.mount_options.iter().any(|found| found == option)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    file_system: String,
    source: String,
    options: Vec<String>,
}

/// The mount that a folder is in: the one with the longest path before it, the last of equals
/// (mounted over the others).
///
/// A line is: id, parent, major:minor, root, mount point, options, optional fields, `-`, type,
/// source, options of the file system (proc(5)).
fn mount_of(mounts: &str, folder: &Path) -> Option<Mount> {
    let mut best: Option<(usize, &str, &str)> = None;
    for line in mounts.lines() {
        let Some((mount, file_system)) = line.split_once(" - ") else { continue };
        let Some(point) = mount.split(' ').nth(4) else { continue };
        let point = unescaped(point);
        let longest = best.map_or(0, |(length, _, _)| length);
        if folder.starts_with(&point) && point.len() >= longest {
            best = Some((point.len(), mount, file_system));
        }
    }
    let (_, mount, file_system) = best?;
    let mut words = file_system.split(' ');
    let (name, source) = (words.next()?, words.next()?);
    let mut options: Vec<String> = Vec::new();
    for option in mount.split(' ').nth(5).into_iter().chain(words.next()).flat_map(|w| w.split(','))
    {
        if !options.iter().any(|known| known == option) {
            options.push(option.to_owned());
        }
    }
    Some(Mount { file_system: name.to_owned(), source: unescaped(source), options })
}

/// Blanks and such stand as three octal digits in the table of mounts.
fn unescaped(text: &str) -> String {
    let mut result = text.to_owned();
    for (escaped, meant) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        result = result.replace(escaped, meant);
    }
    result
}

/// The whole device behind a device number, when there is one.
fn device_of(number: u64) -> Option<Device> {
    let link = format!("/sys/dev/block/{}:{}", major(number), minor(number));
    let mut folder = fs::canonicalize(link).ok()?;
    if folder.join("partition").exists() {
        folder.pop();
    }
    let said = |name: &str| -> Option<String> {
        Some(fs::read_to_string(folder.join(name)).ok()?.trim().to_owned())
    };
    let name = folder.file_name()?.to_string_lossy().into_owned();
    // A disk that is another computer's file calls itself so, or belongs to a machine that is one.
    let is_virtual = ["vd", "xvd"].iter().any(|start| name.starts_with(start)) || is_virtual();
    Some(Device {
        write_cache: said("queue/write_cache"),
        fua: said("queue/fua").map(|word| word == "1"),
        rotational: said("queue/rotational").map(|word| word == "1"),
        is_virtual,
        name,
    })
}

/// Whether the processor says that this machine is a virtual one.
fn is_virtual() -> bool {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split_ascii_whitespace().any(|flag| flag == "hypervisor")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
20 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 20 0:30 / /mnt/my\\040disk rw,noatime shared:2 - nfs4 server:/export rw,hard
31 20 8:1 / /mnt rw - xfs /dev/sda1 rw,nobarrier
32 31 8:2 / /mnt rw - ext4 /dev/sda2 rw,barrier=0
";

    #[test]
    fn a_folder_belongs_to_the_nearest_mount_above_it() {
        let of = |folder: &str| mount_of(MOUNTS, Path::new(folder)).unwrap();
        assert_eq!(of("/home/me").source, "/dev/vda");
        assert_eq!(of("/home/me").options, ["rw", "relatime", "discard"]);
        assert_eq!(of("/mnt/my disk/logs").file_system, "nfs4");
        assert_eq!(of("/mnt/other").options, ["rw", "barrier=0"], "the later mount hides");
        assert_eq!(of("/mntx").source, "/dev/vda", "a name is not a part of another");
        assert_eq!(mount_of("", Path::new("/")), None);
        assert_eq!(mount_of("nonsense\n1 2 3 - a\n", Path::new("/")), None);
    }

    #[test]
    fn this_folder_is_somewhere() {
        let place = FolderLocation::of(Path::new(".")).unwrap();
        assert!(place.folder.is_absolute() && !place.file_system.is_empty());
        assert!(FolderLocation::of(Path::new("/nowhere/at/all")).is_err());
        assert!(FolderLocation::of(Path::new("/proc/self/mountinfo")).is_err(), "no folder");
    }
}
