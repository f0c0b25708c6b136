//! `towline run --check`: says what a start would refuse, and writes nothing.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::daemon::{Daemon, text, towline};
use serde_json::Value;

/// A folder with a configuration, and certificates of a group.
struct Bed {
    folder: tempfile::TempDir,
}

impl Bed {
    fn new() -> Bed {
        let bed = Bed { folder: tempfile::tempdir().unwrap() };
        let out = bed.path("papers");
        let names = ["--group", "G", "--instances", "a,b,c"];
        let made = [&["group", "certificates", "--out", &out], &names[..]].concat();
        towline(&made).assert().success();
        bed
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// The code and what was said as JSON.
    fn check(&self, config: &str, more: &[&str]) -> (bool, Value) {
        let file = self.path("towline.toml");
        let papers = self.path("papers");
        std::fs::write(&file, config.replace("PAPERS", &papers)).unwrap();
        self.checked(&[&["--config", &file], more].concat())
    }

    fn checked(&self, more: &[&str]) -> (bool, Value) {
        let data = self.path("data");
        let mut arguments = vec!["run", "QMT", "--check", "--json"];
        if !more.contains(&"--data") {
            arguments.extend(["--data", &data]);
        }
        let before = everything(self.folder.path());
        let ended = towline(&[&arguments, more].concat()).assert();
        assert_eq!(everything(self.folder.path()), before, "nothing is written");
        let said: Value = serde_json::from_str(&text(&ended)).expect("one document");
        let fine = ended.get_output().status.success();
        assert_eq!(said["would_start"], fine, "{said}");
        (fine, said)
    }

    fn refusal(&self, config: &str, more: &[&str]) -> String {
        let (fine, said) = self.check(config, more);
        assert!(!fine, "{config}: {said}");
        refused(&said)
    }
}

fn refused(said: &Value) -> String {
    of_verdict(said, "refused")
}

fn of_verdict(said: &Value, verdict: &str) -> String {
    let checks = said["checks"].as_array().unwrap().iter();
    let texts = checks.filter(|one| one["verdict"] == verdict);
    texts.map(|one| one["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join("\n")
}

/// All that a folder has: names, lengths and when each was written.
fn everything(folder: &Path) -> Vec<(PathBuf, u64, SystemTime)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let about = entry.metadata().unwrap();
        if about.is_dir() {
            found.extend(everything(&entry.path()));
        }
        found.push((entry.path(), about.len(), about.modified().unwrap()));
    }
    found.sort();
    found
}

const GROUP: &str = r#"
[group]
name = "G"
instance = "a"
certificate = "PAPERS/a.pem"
private_key = "PAPERS/a-key.pem"
authorities = "PAPERS/authority.pem"
[[group.member]]
name = "a"
address = "127.0.0.1:5701"
[[group.member]]
name = "b"
address = "127.0.0.1:5702"
[[group.member]]
name = "c"
address = "127.0.0.1:5703"
"#;

#[test]
fn what_a_start_takes_is_named_and_a_new_folder_is_not_made() {
    let bed = Bed::new();
    let (fine, said) = bed.checked(&[]);
    assert!(fine && !Path::new(&bed.path("data")).exists(), "{said}");
    let listener = "[[listener]]\naddress = \"0.0.0.0:5671\"\nmechanisms = [\"EXTERNAL\"]\n\
                    certificate = \"PAPERS/a.pem\"\nprivate_key = \"PAPERS/a-key.pem\"\n\
                    client_authorities = \"PAPERS/authority.pem\"\n";
    let (fine, said) = bed.check(listener, &[]);
    assert!(fine, "{said}");
    let words = of_verdict(&said, "ok");
    assert!(words.contains("TLS, certificate valid until"), "{words}");
    assert!(words.contains("a new queue manager is made there"), "{words}");
    let (fine, said) = bed.check(GROUP, &[]);
    assert!(!fine && refused(&said).contains("certificate"), "of another queue manager: {said}");
    let file = bed.path("towline.toml");
    let as_named = towline(&["run", "QM1", "--check", "--config", &file]).assert().success();
    assert!(text(&as_named).contains("It would start."), "{}", text(&as_named));
}

#[test]
fn each_thing_that_a_start_refuses_is_refused() {
    let bed = Bed::new();
    std::fs::write(bed.path("users"), "nonsense").unwrap();
    std::fs::write(bed.path("file"), "").unwrap();
    let users = format!("[users]\nfile = {:?}\n", bed.path("users"));
    let gone = format!("[users]\nfile = {:?}\n", bed.path("gone"));
    for (config, expected) in [
        ("[limit]\n", "did you mean 'limits'?"),
        (&users, "TWL1010E"),
        (&gone, "add a user with 'towline user NAME --file"),
        ("[users]\nlocal_group = \"no-such-group\"\n", "this machine has no such group"),
        ("[[listener]]\naddress = \"5672\"\n", "is only a port"),
        ("[[listener]]\naddress = \"127.0.0.1:1\"\nmechanisms = [\"PLAIN\"]\n", "listener"),
        (
            "[[listener]]\naddress = \"127.0.0.1:1\"\ncertificate = \"PAPERS/a.pem\"\n\
             private_key = \"PAPERS/b-key.pem\"\n",
            "TWL1013E",
        ),
        (&GROUP.replace("instance = \"a\"", "instance = \"d\""), "is not a [[group.member]]"),
        (&GROUP.replace("a.pem", "b.pem").replace("a-key", "b-key"), "certificate"),
    ] {
        let words = bed.refusal(config, &[]);
        assert!(words.contains(expected), "{config}: {words}");
    }
    assert!(bed.refusal(GROUP, &["--standby"]).contains("choose one"));
    assert!(bed.refusal("", &["--listen", "0.0.0.0:1"]).contains("--allow-plaintext"));
    let listener = "[[listener]]\naddress = \"127.0.0.1:1\"\n";
    for more in [&["--listen", "127.0.0.1:2"][..], &["--allow-plaintext"]] {
        let words = bed.refusal(listener, more);
        assert!(words.contains("is for a configuration without"), "{words}");
    }
    let file = bed.path("file");
    assert!(bed.refusal("", &["--data", &file]).contains("TWL1014E"));
    let long = bed.path(&"x".repeat(100));
    assert!(bed.refusal("", &["--data", &long]).contains("107 are allowed"));
    let mut run = towline(&["run", "--check"]);
    let words = text(&run.env("TOWLINE_LOG", "inof").assert().code(1));
    assert!(words.contains("TWL1031E") && words.contains("would not start"), "{words}");
    towline(&["run", "--json"]).assert().code(2);
}

#[test]
fn a_folder_with_a_log_tells_its_name_and_the_names_that_it_lacks_also_while_it_is_in_use() {
    let bed = Bed::new();
    let mut daemon = Daemon::start();
    daemon.text(&["mqsc", "-c", "DEFINE QMODEL(MINE)", "-c", "DELETE QLOCAL(DEV.QUEUE.2)"]);
    let rule = |model: &str| {
        format!(
            "[queue_manager]\ndeadq = \"DEV.QUEUE.2\"\n[[auto_define]]\npattern = \"A.*\"\nmodel = \
             \"{model}\"\n"
        )
    };
    let data = &daemon.data().to_owned();
    let (fine, said) = bed.check(&rule("MINE"), &["--data", data]);
    let warned = of_verdict(&said, "warning");
    assert!(fine && warned.contains("TWL1070W") && !warned.contains("TWL1071W"), "{said}");
    let (fine, said) = bed.check(&rule("THEIRS"), &["--data", data]);
    assert!(fine && of_verdict(&said, "warning").contains("TWL1071W"), "{said}");
    daemon.stop();
    let before = everything(daemon.folder.path());
    let (fine, said) = bed.check(&rule("THEIRS"), &["--data", data]);
    assert!(fine && of_verdict(&said, "warning").contains("TWL1071W"), "{said}");
    assert_eq!(everything(daemon.folder.path()), before, "nothing is written");
    let other = towline(&["run", "OTHER", "--check", "--data", data]).assert().code(1);
    assert!(text(&other).contains("TWL1033E"), "{}", text(&other));
    // Of a new one it is known what it has.
    let (_, said) = bed.check(&rule("THEIRS"), &[]);
    let warned = of_verdict(&said, "warning");
    assert!(warned.contains("TWL1071W") && !warned.contains("TWL1070W"), "{said}");
}
