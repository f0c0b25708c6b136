//! The status as text, at most 80 columns wide.

use super::{InstanceRole, QueueManagerState, SharedStatus, Space, Status, instances};
use crate::text::{count, cut, line, printable, row};

/// A write that is out for so long is worth a line.
const STALL_US: u64 = 1_000_000;
/// Columns of a queue's name; a longer one is cut in the middle.
const NAME: usize = 32;

/// The status as a table for a terminal, each line ended.
#[must_use]
pub fn table(status: &Status) -> String {
    let mut text = String::new();
    let state = match status.state {
        QueueManagerState::Starting => "starting",
        QueueManagerState::Running => "running",
        QueueManagerState::Quiescing => "quiescing",
    };
    row(&mut text, "Queue manager", &cut(&printable(&status.name), 58));
    row(
        &mut text,
        "State",
        &format!("{state}, process {}, up {}", status.pid, duration(status.uptime_s)),
    );
    row(&mut text, "Version", &cut(&status.version, 58));
    if let Some(group) = &status.group {
        instances::rows(&mut text, group);
    }
    for listener in &status.listeners {
        row(&mut text, "Listener", &cut(&printable(listener), 58));
    }
    if let Some(shared) = &status.shared {
        row(&mut text, "Shared folder", &cut(&shared_folder(shared), 58));
    }
    row(&mut text, "Connections", &status.connections.to_string());
    log(&mut text, status);
    let memory = &status.memory;
    row(
        &mut text,
        "Memory",
        &format!(
            "{} resident, {} of {} in messages",
            bytes(memory.resident_bytes),
            bytes(memory.message_bytes),
            bytes(memory.message_bytes_max)
        ),
    );
    let index = &status.index;
    let here = bytes(index.bytes);
    let most = bytes(index.bytes_max);
    row(&mut text, "Index", &format!("{here} of {most}, {} on pages", bytes(index.page_bytes)));
    if let Some(group) = &status.group {
        // The clock that the times of the group are of, to the second.
        let now = status.started_at.saturating_add(status.uptime_s.saturating_mul(1_000));
        instances::table(&mut text, group, now);
    }
    queues(&mut text, status);
    text
}

fn shared_folder(shared: &SharedStatus) -> String {
    let SharedStatus { role, epoch, lease_ms, lease_age_ms, standbys } = shared;
    let role = match role {
        InstanceRole::Active => "active",
        InstanceRole::Standby => "standby",
    };
    let standbys: Vec<String> = standbys.iter().map(|name| printable(name)).collect();
    let standbys = if standbys.is_empty() { "none".into() } else { standbys.join(" ") };
    format!("{role}, epoch {epoch}, lease {lease_age_ms} of {lease_ms} ms, standby {standbys}")
}

fn log(text: &mut String, status: &Status) {
    let log = &status.log;
    let space = match log.space {
        Space::Ok => "",
        Space::Low => ", low",
        Space::Full => ", FULL: puts are refused",
    };
    let used = bytes(log.bytes_in_use);
    let max = log.bytes_max.map(|max| format!(" of {}", bytes(max))).unwrap_or_default();
    row(text, "Log", &format!("{used}{max} in use, extents: {}{space}", log.extents));
    row(text, "Log position", &format!("{}, durable {}", log.current_lsn, log.durable_lsn));
    row(
        text,
        "Log writes",
        &format!(
            "{}, {} syncs, {} commits, {}",
            log.writes,
            log.syncs,
            log.commits,
            bytes(log.physical_bytes_written)
        ),
    );
    let latency = &log.write_latency_us;
    row(
        text,
        "Log latency",
        &format!("p50 {} us, p99 {} us, max {} us", latency.p50, latency.p99, latency.max),
    );
    if log.write_waiting_us >= STALL_US {
        row(text, "Log stalled", &format!("for {} ms", log.write_waiting_us / 1_000));
    }
    let image = if status.image.lsn.is_empty() { "none yet" } else { &status.image.lsn };
    let reads = bytes(log.restart_bytes);
    row(text, "Image", &format!("{image}, a restart reads {reads} of log"));
    let restart = &status.restart;
    let how = if restart.rebuilt { ", rebuilt from the whole log" } else { "" };
    let took = restart.total_us / 1_000;
    let read = bytes(restart.bytes);
    row(text, "Last restart", &format!("{took} ms for {read} of log{how}"));
}

fn queues(text: &mut String, status: &Status) {
    if status.queues.is_empty() {
        return;
    }
    let damaged: u64 = status.queues.iter().map(|queue| queue.damaged).sum();
    if damaged > 0 {
        row(text, "Damaged", &format!("{damaged} messages; see the guide damaged-log"));
    }
    line(
        text,
        &format!(
            "\n{:<NAME$}{:>10}{:>8}{:>10}{:>10}{:>5}{:>5}",
            "Queue", "Depth", "Uncom", "Puts", "Gets", "In", "Out"
        ),
    );
    for queue in &status.queues {
        let name = cut(&printable(&queue.name), NAME - 1);
        line(
            text,
            &format!(
                "{name:<NAME$}{:>10}{:>8}{:>10}{:>10}{:>5}{:>5}",
                count(queue.depth, 9),
                count(queue.uncommitted, 7),
                count(queue.puts, 9),
                count(queue.gets, 9),
                count(queue.consumers, 4),
                count(queue.producers, 4)
            ),
        );
    }
}

fn bytes(number: u64) -> String {
    let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (size, unit) in units {
        if number >= size {
            let tenths = (number % size).saturating_mul(10) / size;
            return format!("{}.{tenths} {unit}", number / size);
        }
    }
    format!("{number} B")
}

pub(super) fn duration(seconds: u64) -> String {
    let days = seconds / 86_400;
    let hours = seconds / 3_600 % 24;
    let minutes = seconds / 60 % 60;
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        (_, _, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::QueueStatus;
    use super::*;

    #[test]
    fn the_state_has_one_row_that_scripts_can_look_for() {
        let status = Status { state: QueueManagerState::Running, pid: 4711, ..Status::default() };
        let text = table(&status);
        let row = text.lines().find(|line| line.starts_with("State ")).unwrap();
        assert!(row.contains("running, process 4711, up"), "{row}");
    }

    #[test]
    fn the_table_fits_eighty_columns_whatever_is_in_it() {
        let mut status = Status { name: "Q".repeat(300), ..Status::default() };
        status.uptime_s = u64::MAX;
        status.pid = u32::MAX;
        status.listeners = vec!["amqp://".to_owned() + &"x".repeat(100)];
        status.log.current_lsn = "<65535:65535:65535:65535>".into();
        status.log.durable_lsn = "<65535:65535:65535:65535>".into();
        status.queues.push(QueueStatus {
            name: "n\u{1b}[2J".repeat(60),
            depth: u64::MAX,
            uncommitted: u64::MAX,
            puts: u64::MAX,
            gets: 999_999_999,
            consumers: 123_456,
            producers: 9_999,
            ..QueueStatus::default()
        });
        let text = table(&status);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
            assert!(!line.contains('\u{1b}'), "{line}");
        }
        assert!(text.contains("999999999"), "{text}");
        assert!(text.contains("123k"), "{text}");
    }
}
