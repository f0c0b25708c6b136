//! What a server keeps of a user instead of a password: one line of its users file.
//!
//! Draws the salt; does not keep, show or send the password.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use towline_amqp::sasl::{ITERATIONS_DEFAULT, ITERATIONS_MAX, ITERATIONS_MIN, ScramCredentials};

/// Bytes of salt.
const SALT_BYTES: usize = 16;

/// `name:SCRAM-SHA-256$iterations:salt$stored:server`, base64, as the server's `[users] file` wants
/// it. `iterations` of `None` is what RFC 7677 and the server take for granted.
///
/// # Errors
/// What is wrong with the name, the password or the iterations, for people.
pub fn user_line(name: &str, password: &str, iterations: Option<u32>) -> Result<String, String> {
    let blank = name.trim() != name || name.is_empty() || name.starts_with('#');
    if blank || name.chars().any(|each| each == ':' || each.is_control()) {
        return Err(format!(
            "{name:?} is not a valid user name: no ':', no # first, no blank at an end"
        ));
    }
    if password.is_empty() {
        return Err("the password is empty".into());
    }
    let mut salt = [0_u8; SALT_BYTES];
    getrandom::fill(&mut salt).map_err(|error| error.to_string())?;
    let iterations = iterations.unwrap_or(ITERATIONS_DEFAULT);
    let credentials = ScramCredentials::derive(password, &salt, iterations)
        .ok_or_else(|| format!("iterations are {ITERATIONS_MIN} to {ITERATIONS_MAX}"))?;
    let stored = BASE64.encode(credentials.stored_key());
    let server = BASE64.encode(credentials.server_key());
    let salt = BASE64.encode(salt);
    Ok(format!("{name}:SCRAM-SHA-256${iterations}:{salt}${stored}:{server}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_keys_and_no_password_and_never_repeats() {
        let line = user_line("alice", "correct horse", None).unwrap();
        assert!(line.starts_with("alice:SCRAM-SHA-256$10000:"), "{line}");
        assert!(!line.contains("horse"));
        assert_ne!(user_line("alice", "correct horse", None).unwrap(), line);
    }

    #[test]
    fn names_that_would_break_the_file_are_refused() {
        for name in ["", "a:b", " a", "a\n", "#a"] {
            assert!(user_line(name, "x", None).is_err(), "{name:?}");
        }
        assert!(user_line("a", "", None).is_err());
        assert!(user_line("a", "x", Some(1)).is_err());
    }
}
