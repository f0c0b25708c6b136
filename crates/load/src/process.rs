//! What processes on this machine cost: CPU time and memory, from /proc (Linux).

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// A clock tick of /proc/PID/stat. The kernel fixes USER_HZ at 100 for every program it shows it
/// to.
const TICK: Duration = Duration::from_millis(10);

/// CPU time (user and system, with all threads) that the processes used so far. One that is gone
/// counts nothing.
pub(crate) fn cpu_time(pids: &[u32]) -> Duration {
    pids.iter().filter_map(|pid| cpu_time_of(&pid.to_string())).sum()
}

/// CPU time of this process, exact to nanoseconds.
pub(crate) fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn cpu_time_of(pid: &str) -> Option<Duration> {
    parse_cpu_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields 14 and 15 of the line; the command name may hold spaces and brackets, so fields are
/// counted behind its last bracket.
fn parse_cpu_time(stat: &str) -> Option<Duration> {
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(TICK * user.checked_add(system)?)
}

/// Memory of one or more processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Memory {
    /// Resident now, in bytes.
    pub(crate) resident_bytes: u64,
    /// Most that was ever resident, in bytes.
    pub(crate) resident_bytes_max: u64,
}

/// Memory of the processes together.
pub(crate) fn memory(pids: &[u32]) -> Memory {
    let mut sum = Memory::default();
    for pid in pids {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        sum.resident_bytes += status_bytes(&status, "VmRSS:");
        sum.resident_bytes_max += status_bytes(&status, "VmHWM:");
    }
    sum
}

fn status_bytes(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_brackets_does_not_shift_the_fields() {
        let stat = "12 (a) b) S 1 1 1 0 -1 4194560 5 0 0 0 250 50 0 0 20 0 1 0 9 9 9";
        assert_eq!(parse_cpu_time(stat), Some(Duration::from_secs(3)));
    }

    #[test]
    fn a_process_that_is_gone_costs_nothing() {
        assert_eq!(cpu_time(&[u32::MAX]), Duration::ZERO);
        assert_eq!(memory(&[u32::MAX]), Memory::default());
    }

    #[test]
    fn this_process_has_memory() {
        assert!(memory(&[std::process::id()]).resident_bytes > 0);
    }
}
