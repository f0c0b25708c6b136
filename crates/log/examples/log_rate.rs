//! Measures the recovery log: threads in a closed loop, each committing a record and waiting until
//! it is durable. Prints commits per second, commits per sync, and latencies.
//!
//! ```text
//! log_rate FOLDER [--threads 64] [--bytes 2048] [--seconds 5] [--sync-delay-us 0] [--writers 4]
//! ```

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use towline_log::{
    DelayDisk, Disk, LinuxDisk, Listener, LogError, LogId, Options, Recovery, Space, Urgency,
};
use towline_types::Lsn;

struct Choices {
    folder: PathBuf,
    threads: u64,
    bytes: usize,
    seconds: u64,
    sync_delay: Duration,
    writers: usize,
}

#[derive(Default)]
struct Watch {
    durable: Mutex<Lsn>,
    grown: Condvar,
}

impl Watch {
    fn wait(&self, end: Lsn) {
        let mut durable = self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        while *durable < end {
            durable = self.grown.wait(durable).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Listener for Watch {
    fn durable(&self, upto: Lsn) {
        *self.durable.lock().unwrap_or_else(PoisonError::into_inner) = upto;
        self.grown.notify_all();
    }

    fn failed(&self, error: &LogError) {
        eprintln!("the log failed: {error}");
        std::process::exit(1);
    }

    fn space(&self, space: Space) {
        eprintln!("space: {space:?}");
    }
}

fn choices() -> Option<Choices> {
    let mut arguments = std::env::args().skip(1);
    let mut choices = Choices {
        folder: arguments.next()?.into(),
        threads: 64,
        bytes: 2_048,
        seconds: 5,
        sync_delay: Duration::ZERO,
        writers: 4,
    };
    while let Some(name) = arguments.next() {
        let value: u32 = arguments.next()?.parse().ok()?;
        match name.as_str() {
            "--threads" => choices.threads = u64::from(value),
            "--bytes" => choices.bytes = value as usize,
            "--seconds" => choices.seconds = u64::from(value),
            "--sync-delay-us" => choices.sync_delay = Duration::from_micros(u64::from(value)),
            "--writers" => choices.writers = value as usize,
            _ => return None,
        }
    }
    Some(choices)
}

fn measure(choices: &Choices) -> Result<(), LogError> {
    let linux = Arc::new(LinuxDisk::open(&choices.folder)?);
    println!("direct I/O: {}", linux.is_direct());
    let disk: Arc<dyn Disk> = match choices.sync_delay {
        Duration::ZERO => linux,
        delay => Arc::new(DelayDisk::new(linux, delay)),
    };
    let options = Options { writes_in_flight_max: choices.writers, ..Options::default() };
    let watch = Arc::new(Watch::default());
    let began = Instant::now();
    let recovery = Recovery::open(disk, options, LogId(1))?;
    let log = recovery.start(Arc::clone(&watch) as Arc<dyn Listener>)?;
    println!("start: {:?}", began.elapsed());

    let began = Instant::now();
    let ends = began + Duration::from_secs(choices.seconds);
    let record = vec![0x5a_u8; choices.bytes];
    let mut latencies: Vec<u64> = Vec::new();
    thread::scope(|scope| {
        let run = || {
            let mut latencies = Vec::new();
            while Instant::now() < ends {
                let began = Instant::now();
                let mut appender = log.appender();
                appender.record_with_body(record.len(), |buffer| {
                    buffer.extend_from_slice(&record);
                    Some(record.len().min(40))
                });
                match appender.commit(Urgency::Forced) {
                    Ok(end) => watch.wait(end),
                    Err(error) => {
                        eprintln!("{error}");
                        break;
                    }
                }
                latencies.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
            }
            latencies
        };
        let threads: Vec<_> = (0..choices.threads).map(|_| scope.spawn(run)).collect();
        for thread in threads {
            latencies.extend(thread.join().unwrap_or_default());
        }
    });
    let took = began.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |percent: usize| latencies.get(latencies.len() * percent / 100).copied().unwrap_or(0);
    let stats = log.stats();
    println!("commits/s:    {:.0}", stats.commits as f64 / took);
    println!("commits/sync: {:.1}", stats.commits as f64 / stats.syncs.max(1) as f64);
    println!("commit us:    p50 {} p99 {}", at(50), at(99));
    println!("write:        {:?}", stats.write_latency);
    println!(
        "MB/s:         {:.1} logical, {:.1} physical",
        stats.logical_bytes_written as f64 / took / 1e6,
        stats.physical_bytes_written as f64 / took / 1e6
    );
    log.shutdown();
    Ok(())
}

fn main() -> ExitCode {
    let Some(choices) = choices() else {
        eprintln!(
            "log_rate FOLDER [--threads N] [--bytes N] [--seconds N] [--sync-delay-us N] \
             [--writers N]"
        );
        return ExitCode::FAILURE;
    };
    match measure(&choices) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
