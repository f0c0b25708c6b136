//! The command `towline`, and a queue manager that a test starts for itself.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use assert_cmd::assert::Assert;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) fn towline(arguments: &[&str]) -> assert_cmd::Command {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_towline"));
    command.args(arguments);
    command.env_remove("TOWLINE_DATA").env_remove("TOWLINE_URL").env_remove("TOWLINE_PASSWORD");
    command
}

/// A queue manager that ends with its test.
pub(crate) struct Daemon {
    process: Child,
    pub(crate) folder: TempDir,
    pub(crate) url: String,
}

impl Daemon {
    pub(crate) fn start() -> Daemon {
        Daemon::start_with(&[])
    }

    pub(crate) fn start_with(arguments: &[&str]) -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_towline"))
            .args(["run", "QMT", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.path())
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("ready ").map(ToOwned::to_owned));
        let url = url.expect("it tells when it is ready");
        Daemon { process, folder, url }
    }

    pub(crate) fn data(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Assert {
        towline(arguments).args(["--data", self.data()]).assert()
    }

    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        text(&self.run(arguments).success())
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let text = text(&self.run(&[arguments, &["--json"]].concat()));
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    pub(crate) fn stop(&mut self) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

pub(crate) fn text(assert: &Assert) -> String {
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}
