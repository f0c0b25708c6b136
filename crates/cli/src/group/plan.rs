//! What `towline group demo` puts where: a folder for each instance, its configuration,
//! certificates. Starts nothing.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::arguments::{Demo, GroupCertificates};
use crate::failure::Failure;

/// Names of the instances.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Where the certificates are, below the folder of the demonstration.
const CERTIFICATES: &str = "certificates";

/// They are made anew at each start.
const CERTIFICATE_DAYS: u32 = 365;

/// A group on this machine.
#[derive(Debug)]
pub(super) struct Plan {
    /// The queue manager's name, and the group's.
    pub(super) name: String,
    /// The folder of everything, absolute.
    pub(super) dir: PathBuf,
    pub(super) instances: Vec<PlannedInstance>,
}

/// An instance of it.
#[derive(Debug)]
pub(super) struct PlannedInstance {
    pub(super) name: &'static str,
    /// Data folder.
    pub(super) data: PathBuf,
    pub(super) config: PathBuf,
    /// What it prints.
    pub(super) log: PathBuf,
    /// Where clients come in.
    pub(super) listener: SocketAddr,
    /// Where its links come in.
    link: SocketAddr,
}

impl Plan {
    pub(super) fn of(arguments: &Demo) -> Result<Plan, Failure> {
        let dir = std::path::absolute(&arguments.dir)?;
        let names = if arguments.instances == "1" { &NAMES[..1] } else { &NAMES[..] };
        let needed = if names.len() == 1 { 2 } else { 6 };
        let ports = (0..needed).map(|more: u16| arguments.port.checked_add(more));
        let ports: Option<Vec<u16>> = ports.collect();
        let few = || Failure::Usage(format!("--port: {needed} ports are needed"));
        let ports = ports.ok_or_else(few)?;
        let at = |port: &u16| SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
        let links = ports.iter().skip(names.len());
        let instances = names.iter().zip(&ports).zip(links);
        let instances = instances.map(|((name, port), link)| PlannedInstance {
            name,
            data: dir.join(name),
            config: dir.join(format!("{name}.toml")),
            log: dir.join(format!("{name}.log")),
            listener: at(port),
            link: at(link),
        });
        Ok(Plan { name: arguments.name.clone(), instances: instances.collect(), dir })
    }

    /// Writes configurations and makes certificates, over those of an earlier time: the caller
    /// knows that no instance runs.
    pub(super) fn write(&self) -> Result<(), Failure> {
        std::fs::create_dir_all(&self.dir)
            .map_err(|error| Failure::about(self.dir.display(), error))?;
        let certificates = self.dir.join(CERTIFICATES);
        super::certificates::run(&GroupCertificates {
            out: certificates,
            name: self.name.clone(),
            group: None,
            instances: self.instances.iter().map(|each| each.name.to_owned()).collect(),
            days: CERTIFICATE_DAYS,
            json: false,
        })?;
        for instance in &self.instances {
            let text = self.config(instance)?;
            std::fs::write(&instance.config, text)
                .map_err(|error| Failure::about(instance.config.display(), error))?;
        }
        Ok(())
    }

    /// The configuration of an instance.
    pub(super) fn config(&self, instance: &PlannedInstance) -> Result<String, Failure> {
        let certificates = self.dir.join(CERTIFICATES);
        let paper = |name: String| quoted_path(&certificates.join(name));
        let mut text = format!(
            "# Made by `towline group demo`, anew each time: instance {0} of the group {1}.\n\n\
             [[listener]]\naddress = \"{2}\"\n\n\
             [group]\nname = {3}\ninstance = \"{0}\"\n\
             certificate = {4}\nprivate_key = {5}\nauthorities = {6}\n",
            instance.name,
            self.name.replace(char::is_control, "?"),
            instance.listener,
            quoted(&self.name),
            paper(format!("{}.pem", instance.name))?,
            paper(format!("{}-key.pem", instance.name))?,
            paper("authority.pem".to_owned())?,
        );
        for member in &self.instances {
            // Writing to a String cannot fail.
            write!(
                text,
                "\n[[group.member]]\nname = \"{}\"\naddress = \"{}\"\n",
                member.name, member.link
            )
            .ok();
        }
        Ok(text)
    }
}

/// A string as TOML writes it. JSON's escapes are TOML's, but for one letter that JSON does not
/// escape.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

fn quoted_path(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().ok_or_else(|| {
        Failure::Usage(format!("{}: a configuration cannot hold this name", path.display()))
    })?;
    Ok(quoted(text))
}

#[cfg(test)]
mod tests {
    use towline_config::Config;

    use super::*;

    fn plan(dir: &str) -> Plan {
        let (dir, name) = (PathBuf::from(dir), "QM1".to_owned());
        Plan::of(&Demo { dir, name, port: 7000, instances: "3".into() }).unwrap()
    }

    #[test]
    fn a_demonstration_of_one_instance_has_one_and_two_ports() {
        let (dir, name) = (PathBuf::from("x"), "QM1".to_owned());
        let plan = Plan::of(&Demo { dir, name, port: 7000, instances: "1".into() }).unwrap();
        let [only] = plan.instances.as_slice() else { panic!("{:?}", plan.instances) };
        let group = Config::parse(&plan.config(only).unwrap()).unwrap().group.unwrap();
        let [member] = group.member.as_slice() else { panic!("{:?}", group.member) };
        assert_eq!((member.name.as_str(), member.address.as_str()), ("a", "127.0.0.1:7001"));
    }

    #[test]
    fn each_instance_has_a_configuration_that_the_server_takes() {
        let plan = plan("/tmp/it \"is\" \\ my\u{7f}\n folder");
        for (at, instance) in plan.instances.iter().enumerate() {
            let text = plan.config(instance).unwrap();
            let config = Config::parse(&text).unwrap();
            let group = config.group.unwrap();
            assert_eq!(group.name, "QM1");
            assert_eq!(group.position(&group.instance), Some(at));
            let links: Vec<&str> = group.member.iter().map(|each| each.address.as_str()).collect();
            assert_eq!(links, ["127.0.0.1:7003", "127.0.0.1:7004", "127.0.0.1:7005"]);
            let key = format!("{}-key.pem", instance.name);
            assert_eq!(group.private_key, plan.dir.join(CERTIFICATES).join(key));
            let listeners: Vec<u16> =
                config.listener.iter().map(|each| each.address.port()).collect();
            assert_eq!(listeners, [7000 + u16::try_from(at).unwrap()]);
        }
    }

    #[test]
    fn folders_of_instances_are_absolute() {
        let plan = plan("x");
        assert!(plan.dir.is_absolute());
        assert_eq!(plan.instances[2].data, plan.dir.join("c"));
    }
}
