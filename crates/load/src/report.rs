//! The result of a run: one value, shown as a table or written as JSON.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

use crate::args::{Entropy, Mode};
use crate::board::Counts;
use crate::latency::{Kind, Summary, human};
use crate::plan::{Plan, Seat};
use crate::process::Memory;
use crate::run::Outcome;
use crate::verify::Verdict;

/// Everything that was measured, with what is needed to repeat it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    mode: &'static str,
    urls: Vec<String>,
    clients: usize,
    queues: usize,
    threads: u32,
    size_bytes: usize,
    entropy: &'static str,
    persistent: bool,
    window: u32,
    batch: u32,
    /// Seconds that were measured.
    seconds: f64,
    puts: Rate,
    gets: Rate,
    pairs: Rate,
    commits: Rate,
    replies: Rate,
    refused: u64,
    reconnects: u64,
    /// Longest time between two confirmations of a thread.
    confirmation_gap_max_us: u64,
    latencies_us: Vec<Latency>,
    server: Option<Cost>,
    generator: Cost,
    verdict: Verdict,
    unfinished: u32,
    remarks: Vec<String>,
    /// Whether something was done and finished, nothing was lost, and nothing came twice (unless
    /// allowed) or out of order.
    passed: bool,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Rate {
    count: u64,
    per_second: f64,
}

#[derive(Debug, Serialize)]
struct Latency {
    of: &'static str,
    #[serde(flatten)]
    summary: Summary,
}

/// CPU time and memory of processes while measuring.
#[derive(Debug, Serialize)]
struct Cost {
    /// Microseconds of CPU for each operation; an operation is named in `operation`.
    cpu_us_per_operation: Option<f64>,
    operation: &'static str,
    /// Processors kept busy.
    processors: f64,
    #[serde(flatten)]
    memory: Memory,
}

impl Report {
    /// The report of a run. `ledger` has the drain merged in; `complete` as in
    /// [`crate::verify::Ledger::verdict`].
    pub(crate) fn new(plan: &Plan, outcome: &Outcome, has_server: bool, complete: bool) -> Report {
        let verdict = outcome.ledger.verdict(complete, plan.verify_drain);
        let clean = verdict.lost == 0
            && verdict.reordered == 0
            && (verdict.duplicated == 0 || plan.allow_duplicates);
        let Counts { puts, gets, .. } = outcome.counts_all;
        let did_something = puts + gets > 0 || plan.mode == Mode::Idle || plan.count == Some(0);
        let rate = |count| Rate { count, per_second: per_second(count, outcome.measured) };
        let counts = outcome.counts;
        let own_memory = crate::process::memory(&[std::process::id()]);
        let summaries = Kind::ALL.into_iter().filter_map(|kind| {
            let summary = outcome.latencies.summary(kind)?;
            Some(Latency { of: kind.name(), summary })
        });
        Report {
            mode: mode_name(plan.mode),
            urls: plan.urls.iter().map(ToString::to_string).collect(),
            clients: plan.seats.len(),
            queues: distinct_queues(&plan.seats),
            threads: plan.threads,
            size_bytes: plan.size,
            entropy: entropy_name(plan.entropy),
            persistent: plan.persistent,
            window: plan.window,
            batch: plan.batch,
            seconds: outcome.measured.as_secs_f64(),
            puts: rate(counts.puts),
            gets: rate(counts.gets),
            pairs: rate(counts.pairs),
            commits: rate(counts.commits),
            replies: rate(counts.replies),
            refused: outcome.counts_all.refused,
            reconnects: outcome.counts_all.reconnects,
            confirmation_gap_max_us: outcome.gap_max_us,
            latencies_us: summaries.collect(),
            server: has_server.then(|| {
                cost(plan.mode, counts, outcome, outcome.server_cpu, outcome.server_memory)
            }),
            generator: cost(plan.mode, counts, outcome, outcome.own_cpu, own_memory),
            verdict,
            unfinished: outcome.unfinished,
            remarks: outcome.remarks.clone(),
            passed: clean && did_something && outcome.unfinished == 0,
        }
    }

    /// Whether the run was clean.
    pub(crate) fn passed(&self) -> bool {
        self.passed
    }
}

fn cost(mode: Mode, counts: Counts, outcome: &Outcome, cpu: Duration, memory: Memory) -> Cost {
    let (operation, count) = match mode {
        Mode::Requester => ("pair", counts.pairs),
        Mode::Responder => ("reply", counts.replies),
        Mode::Put => ("put", counts.puts),
        Mode::Get => ("get", counts.gets),
        // A message is one put and one get.
        Mode::Stream | Mode::Transaction => ("message", counts.gets),
        Mode::Idle => ("nothing", 0),
    };
    #[expect(clippy::cast_precision_loss, reason = "a count of a run is far below 2^52")]
    let cpu_us_per_operation = (count > 0).then(|| cpu.as_secs_f64() * 1e6 / count as f64);
    let processors = cpu.as_secs_f64() / outcome.measured.as_secs_f64().max(1e-9);
    Cost { cpu_us_per_operation, operation, processors, memory }
}

fn per_second(count: u64, measured: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of a run is far below 2^52")]
    let count = count as f64;
    count / measured.as_secs_f64().max(1e-9)
}

fn distinct_queues(seats: &[Seat]) -> usize {
    let names: std::collections::BTreeSet<&str> = seats.iter().map(|seat| &*seat.queue).collect();
    names.len()
}

const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Requester => "requester",
        Mode::Responder => "responder",
        Mode::Put => "put",
        Mode::Get => "get",
        Mode::Stream => "stream",
        Mode::Transaction => "transaction",
        Mode::Idle => "idle",
    }
}

const fn entropy_name(entropy: Entropy) -> &'static str {
    match entropy {
        Entropy::Random => "random",
        Entropy::Zeros => "zeros",
        Entropy::Text => "text",
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let persistence = if self.persistent { "persistent" } else { "non-persistent" };
        writeln!(
            out,
            "{} of {} clients for {:.1} s: {} bytes, {}, {persistence}",
            self.mode, self.clients, self.seconds, self.size_bytes, self.entropy
        )?;
        let rates = [
            ("puts", self.puts),
            ("gets", self.gets),
            ("pairs", self.pairs),
            ("commits", self.commits),
            ("replies", self.replies),
        ];
        for (name, rate) in rates.into_iter().filter(|(_, rate)| rate.count > 0) {
            writeln!(out, "  {name:<10} {:>12.0} /s {:>14} in all", rate.per_second, rate.count)?;
        }
        self.write_latencies(out)?;
        if let Some(server) = &self.server {
            writeln!(out, "  server     {server}")?;
        }
        writeln!(out, "  generator  {}", self.generator)?;
        self.write_verdict(out)
    }
}

impl Report {
    fn write_latencies(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.latencies_us.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "  {:<10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "latency", "p50", "p90", "p99", "p99.9", "max"
        )?;
        for Latency { of, summary } in &self.latencies_us {
            let mut line = format!("  {of:<10}");
            for us in [summary.p50, summary.p90, summary.p99, summary.p999, summary.max] {
                write!(line, " {:>10}", human(us))?;
            }
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn write_verdict(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { lost, duplicated, reordered, in_doubt, foreign, left, .. } = self.verdict;
        writeln!(out, "  check      {lost} lost, {duplicated} duplicated, {reordered} reordered")?;
        if in_doubt > 0 || foreign > 0 {
            writeln!(out, "             {in_doubt} in doubt, {foreign} of other runs")?;
        }
        if left > 0 {
            writeln!(
                out,
                "             {left} left on the queue: messages of other runs came in their place\n\
                 \x20            (empty the queue, or use --verify-drain, to see each one)"
            )?;
        }
        if self.refused > 0 || self.reconnects > 0 || self.unfinished > 0 {
            writeln!(
                out,
                "  also       {} refused, {} reconnects, {} unfinished, longest gap {}",
                self.refused,
                self.reconnects,
                self.unfinished,
                human(self.confirmation_gap_max_us)
            )?;
        }
        for remark in &self.remarks {
            writeln!(out, "  remark     {remark}")?;
        }
        write!(out, "  {}", if self.passed { "passed" } else { "FAILED" })
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(us) = self.cpu_us_per_operation {
            write!(out, "{us:.1} us of CPU per {}, ", self.operation)?;
        }
        #[expect(clippy::cast_precision_loss, reason = "for people, one decimal")]
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(
            out,
            "{:.2} processors\n             {:.1} MiB resident (most {:.1})",
            self.processors,
            mib(self.memory.resident_bytes),
            mib(self.memory.resident_bytes_max)
        )
    }
}
