//! Users and what proves them: one line each, `name:SCRAM-SHA-256$iterations:salt$stored:server`, base64,
//! never a password. Lines that start with `#` are remarks.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use towline_amqp::sasl::ScramCredentials;

use crate::config::UsersConfig;

/// Everybody who may log in with a name.
#[derive(Debug, Default)]
pub(crate) struct Users {
    by_name: HashMap<String, ScramCredentials>,
    administrators: Vec<String>,
    salt_secret: Option<Arc<[u8]>>,
}

impl Users {
    /// Reads the users file that the configuration names, if it names one.
    ///
    /// # Errors
    /// A text with file and line.
    pub(crate) fn read(config: &UsersConfig) -> Result<Users, String> {
        let mut users = Users {
            by_name: HashMap::new(),
            administrators: config.administrators.clone(),
            salt_secret: Some(Arc::from(crate::random::bytes::<32>())),
        };
        let Some(path) = &config.file else { return Ok(users) };
        refuse_readable_by_others(path)?;
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read users file {}: {error}", path.display()))?;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || {
                format!(
                    "{}: line {}: not `name:SCRAM-SHA-256$iterations:salt$stored:server`; \
                     `towline user NAME` writes such a line",
                    path.display(),
                    index + 1
                )
            };
            let (name, credentials) = line.split_once(':').ok_or_else(wrong)?;
            let credentials = parse(credentials).ok_or_else(wrong)?;
            users.by_name.insert(name.to_owned(), credentials);
        }
        Ok(users)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(crate) fn credentials(&self, user: &str) -> Option<ScramCredentials> {
        self.by_name.get(user).cloned()
    }

    /// Whether the password is this user's. Without any user there is nothing to check against and
    /// everybody fits (listeners then take anonymous clients as well).
    pub(crate) fn password_fits(&self, user: &str, password: &str) -> bool {
        if self.by_name.is_empty() {
            return true;
        }
        self.by_name.get(user).is_some_and(|credentials| credentials.fits(password))
    }

    pub(crate) fn is_administrator(&self, user: &str) -> bool {
        self.administrators.iter().any(|name| name == user)
    }

    pub(crate) fn salt_secret(&self) -> Arc<[u8]> {
        self.salt_secret.clone().unwrap_or_else(|| Arc::from([0_u8; 32]))
    }
}

/// `SCRAM-SHA-256$iterations:salt$stored:server`, the form in which PostgreSQL keeps them too.
fn parse(text: &str) -> Option<ScramCredentials> {
    let rest = text.strip_prefix("SCRAM-SHA-256$")?;
    let (first, keys) = rest.split_once('$')?;
    let (iterations, salt) = first.split_once(':')?;
    let (stored, server) = keys.split_once(':')?;
    let key = |text: &str| <[u8; 32]>::try_from(BASE64.decode(text).ok()?).ok();
    let salt = BASE64.decode(salt).ok()?;
    ScramCredentials::new(&salt, iterations.parse().ok()?, key(stored)?, key(server)?)
}

fn refuse_readable_by_others(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path)
        .map_err(|error| format!("cannot read users file {}: {error}", path.display()))?;
    if metadata.mode() & 0o007 != 0 {
        return Err(format!(
            "users file {} can be read or written by everybody; chmod 600 it",
            path.display()
        ));
    }
    Ok(())
}
