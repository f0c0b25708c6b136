//! The same operations on the files of the operating system and on simulated ones.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use super::*;
use crate::fs::{MetadataExt, TryLockError};

const PATHS: [&str; 8] = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "a/b"];
const STEPS: usize = 300;

/// One process: what it does depends on its seed and on nothing else.
struct Walk {
    root: PathBuf,
    dice: SeededRandom,
    handles: Vec<File>,
    results: Vec<String>,
}

impl Walk {
    fn run(root: PathBuf, seed: u64) -> Vec<String> {
        let dice = SeededRandom::mixed(seed);
        let mut walk = Walk { root, dice, handles: Vec::new(), results: Vec::new() };
        for _ in 0..STEPS {
            walk.step();
        }
        walk.results
    }

    fn path(&mut self) -> PathBuf {
        let name = PATHS[self.dice.index(PATHS.len())];
        self.root.join(name)
    }

    fn note<T: std::fmt::Debug>(&mut self, what: &str, result: io::Result<T>) {
        let result = result.map_err(|error| error.kind());
        self.results.push(format!("{} {what}: {result:?}", self.results.len()));
    }

    fn step(&mut self) {
        let (path, other) = (self.path(), self.path());
        let root = self.root.clone();
        let name = |what: &str, paths: &[&PathBuf]| {
            let short = paths.iter().map(|path| path.strip_prefix(&root).unwrap().display());
            format!("{what} {}", short.map(|path| path.to_string()).collect::<Vec<_>>().join(" "))
        };
        match self.dice.below(16) {
            0 => self.note(&name("mkdir", &[&path]), fs::create_dir(&path)),
            1 => self.note(&name("mkdirs", &[&path]), fs::create_dir_all(&path)),
            2 => self.note(&name("rmdir", &[&path]), fs::remove_dir(&path)),
            3 => self.note(&name("rm", &[&path]), fs::remove_file(&path)),
            4 => self.note(&name("mv", &[&path, &other]), fs::rename(&path, &other)),
            5 => self.note(&name("ln", &[&path, &other]), fs::hard_link(&path, &other)),
            6 if self.dice.chance(200) => {
                self.note(&name("rmr", &[&path]), fs::remove_dir_all(&path));
            }
            6 => self.note(&name("read", &[&path]), fs::read(&path)),
            7 => {
                let bytes = self.bytes();
                self.note(&name("write", &[&path]), fs::write(&path, bytes));
            }
            8 if path != other => self.note(&name("cp", &[&path, &other]), fs::copy(&path, &other)),
            8 | 9 => {
                let listed = fs::read_dir(&path).map(|entries| {
                    let names = entries.map(|entry| {
                        let entry = entry.unwrap();
                        (entry.file_name(), entry.file_type().unwrap().is_dir())
                    });
                    let mut names: Vec<_> = names.collect();
                    names.sort();
                    names
                });
                self.note(&name("ls", &[&path]), listed);
            }
            10 => {
                let found = fs::metadata(&path).map(|found| {
                    (found.is_file(), found.is_file().then(|| (found.len(), found.nlink())))
                });
                self.note(&name("stat", &[&path]), found);
                let there = (fs::exists(&path), fs::is_dir(&path), fs::is_file(&path));
                self.note("there", Ok(there));
            }
            11 | 12 => {
                let name = name("open", &[&path]);
                self.open(&path, &name);
            }
            _ => self.use_handle(),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.dice.index(10_000)];
        self.dice.fill(&mut bytes);
        bytes
    }

    fn open(&mut self, path: &Path, name: &str) {
        let mut options = OpenOptions::new();
        let draws = [(); 6].map(|()| self.dice.chance(500));
        let [reads, writes, appends, truncates, creates, creates_new] = draws;
        options.read(reads).write(writes).append(appends && !truncates);
        options.truncate(truncates).create(creates).create_new(creates_new && !writes);
        let opened = options.open(path);
        let name = format!("{name} {draws:?}");
        match opened {
            Ok(file) => {
                self.note(&name, Ok(()));
                self.handles.push(file);
            }
            Err(error) => self.note::<()>(&name, Err(error)),
        }
        if self.handles.len() > 4 {
            let at = self.dice.index(self.handles.len());
            drop(self.handles.remove(at));
        }
    }

    fn use_handle(&mut self) {
        let bytes = self.bytes();
        if self.handles.is_empty() {
            return;
        }
        let at = self.dice.index(self.handles.len());
        let mut file = self.handles.remove(at);
        let offset = self.dice.below(20_000);
        let mut buffer = vec![0; bytes.len()];
        let is_file = file.metadata().unwrap().is_file();
        match self.dice.below(10) {
            0 => self.note("pread", file.read_at(&mut buffer, offset).map(|count| (count, buffer))),
            1 => self.note("pwrite", file.write_at(&bytes, offset)),
            2 => self.note("hread", file.read(&mut buffer).map(|count| (count, buffer))),
            3 => self.note("hwrite", file.write(&bytes)),
            4 if is_file => {
                let to = [SeekFrom::Start(offset), SeekFrom::End(-5), SeekFrom::Current(7)];
                let to = to[self.dice.index(3)];
                self.note("seek", file.seek(to));
            }
            5 => self.note("cut", file.set_len(offset)),
            6 => self.note("sync", file.sync_all()),
            7 => {
                let found =
                    file.metadata().map(|found| is_file.then(|| (found.len(), found.nlink())));
                self.note("hstat", found);
            }
            8 => {
                let locked =
                    match if offset > 10_000 { file.try_lock() } else { file.try_lock_shared() } {
                        Ok(()) => Ok(true),
                        Err(TryLockError::WouldBlock) => Ok(false),
                        Err(TryLockError::Error(error)) => Err(error),
                    };
                self.note("lock", locked);
            }
            _ => self.note("unlock", file.unlock()),
        }
        self.handles.push(file);
    }
}

#[test]
fn simulated_files_do_what_those_of_the_operating_system_do() {
    let given = std::env::var("TOWLINE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = given.map_or(0..40, |seed: u64| seed..seed + 1);
    for seed in seeds {
        println!("TOWLINE_SEED={seed}");
        let folder = tempfile::tempdir().unwrap();
        let real = Walk::run(folder.path().to_owned(), seed);
        let simulated = run(&FileSystem::new(), seed, move || Walk::run("/".into(), seed));
        for at in 0..real.len().min(simulated.len()) {
            let before = &real[at.saturating_sub(5)..at];
            assert_eq!(simulated[at], real[at], "seed {seed} {before:?}");
        }
        assert_eq!(real.len(), simulated.len());
    }
}
