//! `towline user`: prints a line for a server's users file. Talks to nobody and writes no file.

use towline_client::user_line;

use crate::arguments::User;
use crate::failure::Failure;
use crate::{reach, show};

/// Runs the command.
pub(crate) fn run(arguments: &User) -> Result<(), Failure> {
    let given = reach::given_password(arguments.password_file.as_deref())?;
    let password = match given {
        Some(password) => password,
        None => asked_twice(&arguments.name)?,
    };
    let line = user_line(&arguments.name, &password, arguments.iterations);
    show::line(&line.map_err(Failure::Usage)?)
}

/// Nobody sees what they type, so they type it twice.
fn asked_twice(name: &str) -> Result<String, Failure> {
    let password = reach::prompt(&format!("Password of {name}"))?;
    let again = reach::prompt("Once more")?;
    if password != again {
        return Err(Failure::Usage("the two passwords are not the same".into()));
    }
    Ok(password)
}
