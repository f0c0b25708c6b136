//! What `towline run` says after `ready`: commands to try next, as they can be typed. Only text.

use std::path::Path;

use crate::shell::shell_word;

/// Where commands look when they are told nothing.
const DATA_DEFAULT: &str = "./data/QM1";

/// A few lines for somebody who just started a queue manager: `program` as it was called, the data
/// folder, and where clients come in.
pub(crate) fn text(program: &str, data: &Path, url: &str) -> String {
    let towline = shell_word(program);
    // No client can connect to "any address"; on this machine the listener is localhost too.
    let url = url.replace("//0.0.0.0:", "//localhost:").replace("//[::]:", "//localhost:");
    let data = if data == Path::new(DATA_DEFAULT) {
        String::new()
    } else {
        format!(" --data {}", shell_word(&data.display().to_string()))
    };
    // A trust store and a user are needed then, and in a group the other instances are named too.
    let more = match url.starts_with("amqps:") {
        true => "\n  with user, password and trust store: docs/guides/tls-and-users.md",
        false => "",
    };
    format!(
        "Try in another terminal:\n  \
         {towline} put DEV.QUEUE.1 hello{data}\n  \
         {towline} get DEV.QUEUE.1{data}\n  \
         {towline} status{data}\n  \
         {towline} mqsc{data}\n\
         From JMS (Qpid): new JmsConnectionFactory(\"{url}\"){more}\n\
         Ctrl-C here ends the queue manager in order."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_folder_need_not_be_typed() {
        let text = text("./towline", Path::new("./data/QM1"), "amqp://127.0.0.1:5672");
        assert!(text.contains("\n  ./towline put DEV.QUEUE.1 hello\n"), "{text}");
        assert!(text.contains("JmsConnectionFactory(\"amqp://127.0.0.1:5672\")"), "{text}");
    }

    #[test]
    fn any_other_folder_stands_in_each_command_as_a_shell_takes_it() {
        let text = text("towline", Path::new("/tmp/it's mine"), "amqp://127.0.0.1:5672");
        assert_eq!(text.matches(r" --data '/tmp/it'\''s mine'").count(), 4, "{text}");
    }

    #[test]
    fn a_listener_on_all_addresses_is_shown_as_one_that_can_be_connected_to() {
        for any in ["amqps://0.0.0.0:5671", "amqps://[::]:5671"] {
            let text = text("towline", Path::new("x"), any);
            assert!(text.contains("\"amqps://localhost:5671\")\n  with user, password"), "{text}");
        }
    }

    #[test]
    fn no_line_looks_like_the_ready_line() {
        let text = text("towline", Path::new("x"), "amqp://127.0.0.1:1");
        assert!(text.lines().all(|line| !line.starts_with("ready")), "{text}");
    }
}
