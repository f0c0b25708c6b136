//! Messages with numbers, for tests of damaged logs: which ones a command printed, and which not.

/// A configuration with a dead-letter queue.
pub const WITH_DLQ: &str = "[queue_manager]\ndeadq = \"DEV.DEAD.LETTER.QUEUE\"\n";

/// A message of about 4 KB.
#[must_use]
pub fn text(number: usize) -> String {
    format!("message {number:03} {}", "x".repeat(4_000))
}

/// The numbers of the messages that a command printed.
#[must_use]
pub fn numbers(printed: &str) -> Vec<usize> {
    let lines = printed.lines().filter_map(|line| line.strip_prefix("message "));
    lines.filter_map(|rest| rest.get(..3)?.parse().ok()).collect()
}
