//! How a queue manager is found and logged in to.
//!
//! A password comes from a file, from TOWLINE_PASSWORD or from the terminal, never from an
//! argument: all users of the machine can read those.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use towline_admin::status::{ProcessPhase, ProcessReport};
use towline_client::{Address, Client, Error, Options, Sasl};

use crate::arguments::{Mechanism, Reach};
use crate::control::{ControlClient, WAIT_MIN, reach_within};
use crate::failure::Failure;
use crate::process::Process;

/// Name of the socket in a data folder.
pub(crate) const SOCKET: &str = "towline.sock";

/// Until a process says what it is doing.
const PHASE_MAX: Duration = Duration::from_secs(1);

/// The default folder of a queue manager's data.
const DATA_DEFAULT: &str = "./data/QM1";

/// A way to a queue manager that can be gone more than once.
pub(crate) struct Connector {
    address: Address,
    options: Options,
}

impl Connector {
    /// Connects.
    pub(crate) fn connect(&self) -> Result<Client, Failure> {
        let began = Instant::now();
        Client::connect(&self.address, &self.options).map_err(|error| match error {
            Error::CannotConnect { address, reason } if began.elapsed() >= self.options.timeout => {
                let listens = self.listener().map(|pid| {
                    format!(
                        "; process {pid} listens there: `kill -CONT {pid}` lets a stopped one go on"
                    )
                });
                let reason = reason + &listens.unwrap_or_default();
                Error::CannotConnect { address, reason }.into()
            }
            Error::CannotConnect { address, reason } => {
                let reason = self.unserved().unwrap_or(reason);
                Error::CannotConnect { address, reason }.into()
            }
            other => other.into(),
        })
    }

    /// What the process in the data folder is doing, where it serves no client now, and what to do.
    fn unserved(&self) -> Option<String> {
        let Address::Local(socket) = &self.address else { return None };
        let mut process = ControlClient::connect(socket.parent()?, PHASE_MAX).ok()??;
        let ProcessReport { queue_manager, pid, phase, active, .. } = process.report().ok()?;
        let what_to_do = match phase {
            ProcessPhase::Running => return None,
            ProcessPhase::Starting => "try again when `towline status` shows it running".to_owned(),
            ProcessPhase::Standby => format!("process {active} is the active one: see --url"),
            ProcessPhase::Ending => {
                "it accepts no new clients; start it again when it has ended, and then try again"
                    .into()
            }
        };
        let phase = phase.as_str();
        Some(format!("queue manager {queue_manager} (process {pid}) is {phase}: {what_to_do}"))
    }

    /// The process that listens in the data folder, where one is meant.
    fn listener(&self) -> Option<u32> {
        let Address::Local(socket) = &self.address else { return None };
        let process = Process::behind(reach_within(socket, WAIT_MIN).ok()?).ok()?;
        Some(process.number())
    }
}

impl Reach {
    /// Connects.
    pub(crate) fn connect(&self) -> Result<Client, Failure> {
        self.connector()?.connect()
    }

    /// All that is needed to connect, a password asked for included.
    pub(crate) fn connector(&self) -> Result<Connector, Failure> {
        let address = self.address()?;
        let options = self.options(&address)?;
        Ok(Connector { address, options })
    }

    /// The data folder, where one is meant and not an address.
    pub(crate) fn folder(&self) -> Result<Option<PathBuf>, Failure> {
        match self.address()? {
            Address::Local(socket) => Ok(socket.parent().map(Path::to_owned)),
            Address::Remote(_) => Ok(None),
        }
    }

    /// An option counts more than the environment, whichever of the two it names.
    fn address(&self) -> Result<Address, Failure> {
        if let Some(url) = &self.url {
            return remote("--url", url);
        }
        if let Some(data) = &self.data {
            return Ok(Address::Local(data.join(SOCKET)));
        }
        if let Ok(url) = std::env::var("TOWLINE_URL") {
            return remote("TOWLINE_URL", &url);
        }
        let data = std::env::var_os("TOWLINE_DATA").unwrap_or_else(|| DATA_DEFAULT.into());
        Ok(Address::Local(Path::new(&data).join(SOCKET)))
    }

    fn options(&self, address: &Address) -> Result<Options, Failure> {
        let user = match address {
            Address::Remote(url) => url.user.as_deref(),
            Address::Local(_) => None,
        };
        let sasl = match self.sasl {
            Some(Mechanism::Anonymous) => Some(Sasl::Anonymous),
            Some(Mechanism::Plain) => Some(Sasl::Plain),
            Some(Mechanism::Scram) => Some(Sasl::Scram),
            Some(Mechanism::External) => Some(Sasl::External),
            // A certificate and no user: the name is in the certificate.
            None if user.is_none() && self.cert.is_some() => Some(Sasl::External),
            None => None,
        };
        let wanted = match sasl {
            Some(Sasl::Anonymous | Sasl::External) => None,
            Some(Sasl::Plain | Sasl::Scram) | None => user,
        };
        let password = match wanted {
            Some(user) => Some(self.password(user)?),
            None => None,
        };
        Ok(Options {
            container: "towline".into(),
            password,
            sasl,
            certificate_authorities: self.ca.clone(),
            certificate: self.cert.clone().zip(self.key.clone()),
            timeout: Duration::from_secs_f64(self.timeout.max(0.001)),
        })
    }

    fn password(&self, user: &str) -> Result<String, Failure> {
        match given_password(self.password_file.as_deref())? {
            Some(password) => Ok(password),
            None => prompt(&format!("Password of {user}")),
        }
    }
}

fn remote(from: &str, url: &str) -> Result<Address, Failure> {
    Address::parse(url).map_err(|reason| Failure::Usage(format!("{from} {url}: {reason}")))
}

/// The password in a file, or else in the environment.
pub(crate) fn given_password(file: Option<&Path>) -> Result<Option<String>, Failure> {
    match file {
        Some(file) => first_line(file).map(Some),
        None => Ok(std::env::var("TOWLINE_PASSWORD").ok()),
    }
}

fn first_line(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Asks at the terminal, without showing what is typed.
pub(crate) fn prompt(what: &str) -> Result<String, Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        let message = "a password is needed: --password-file FILE or TOWLINE_PASSWORD";
        return Err(Failure::Usage(message.into()));
    }
    let shown = tcgetattr(&input).map_err(Failure::failed)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    let mut errors = std::io::stderr();
    write!(errors, "{what}: ")?;
    errors.flush()?;
    tcsetattr(&input, OptionalActions::Flush, &hidden).map_err(Failure::failed)?;
    let mut line = String::new();
    let read = input.lock().read_line(&mut line);
    let restored = tcsetattr(&input, OptionalActions::Flush, &shown);
    writeln!(errors)?;
    read?;
    restored.map_err(Failure::failed)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_and_no_user_log_in_with_the_certificate() {
        let login = |url: &str, cert: bool, sasl: Option<Mechanism>| {
            let cert = cert.then(|| PathBuf::from("alice.pem"));
            let reach = Reach {
                data: None,
                url: Some(url.into()),
                // A user needs one, or the test would ask for it.
                password_file: Some("/dev/null".into()),
                sasl,
                ca: None,
                key: cert.clone(),
                cert,
                timeout: 1.0,
                json: false,
            };
            let address = reach.address().unwrap();
            let options = reach.options(&address).unwrap();
            (options.sasl, options.password.is_some())
        };
        assert_eq!(login("amqps://host", true, None), (Some(Sasl::External), false));
        assert_eq!(login("amqps://host", false, None), (None, false));
        // A user that is named logs in with that user's password.
        assert_eq!(login("amqps://alice@host", true, None), (None, true));
        let named = Some(Mechanism::Anonymous);
        assert_eq!(login("amqps://host", true, named), (Some(Sasl::Anonymous), false));
    }
}
