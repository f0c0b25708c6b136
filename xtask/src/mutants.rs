//! `cargo xtask mutants`: puts one plausible bug after the other into a copy of the tree, and looks
//! whether a test or the simulator notices it.
//!
//! Reading order: [`list`] (the bugs, in tests/mutants/), [`workshop`] (the copy of the tree, and
//! what is built in it), [`killer_run`] (one test program, with a time limit), [`verdict`] (what
//! came of each, and the table).
//!
//! Not here: which bugs there are. Invariants: the user's tree is not changed; a killer counts only
//! when it succeeds on the unchanged tree; a mutant that does not compile is an error, no kill. A
//! killer that fails there ends nothing: the run goes on without it, and says so at its end.

mod killer_run;
pub(crate) mod list;
mod verdict;
mod workshop;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use killer_run::{KillerEnd, Patience, run_killer};
use list::{Killer, Mutant};
use verdict::{Fate, Verdict};
use workshop::Workshop;

/// No killer takes longer on the unchanged tree.
const GREEN_MAX: Duration = Duration::from_secs(180);

const USAGE: &str = "usage: cargo xtask mutants [OPTIONS] [NAME...]

  Puts each mutant (tests/mutants/) into a copy of the tree, and runs its killers until one fails.
  A NAME is that of a mutant or of a file of them. Exit status: 0 all are killed, 1 one survives,
  2 wrong command line, 3 something is wrong with a mutant, a killer or the build.

  --list         list the mutants, and run nothing
  --killer KIND  only killers of this kind: unit, sim, or all (the default)
  --jobs N       so many mutants at a time, each in its own copy (the default is 1)
  --json         one JSON object instead of the table";

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct Choice {
    names: Vec<String>,
    list: bool,
    json: bool,
    kind: Option<&'static str>,
    jobs: usize,
}

/// Runs the command; yields its exit status.
pub(crate) fn run(arguments: &[&str]) -> u8 {
    let Some(choice) = parse(arguments) else {
        eprintln!("{USAGE}");
        return 2;
    };
    match carry_out(&choice) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("cannot run the mutants: {error}");
            3
        }
    }
}

fn parse(arguments: &[&str]) -> Option<Choice> {
    let mut choice = Choice { names: Vec::new(), list: false, json: false, kind: None, jobs: 1 };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match *argument {
            "--list" => choice.list = true,
            "--json" => choice.json = true,
            "--jobs" => choice.jobs = arguments.next()?.parse().ok().filter(|jobs| *jobs > 0)?,
            "--killer" => {
                choice.kind = match *arguments.next()? {
                    "unit" => Some(list::UNIT),
                    "sim" => Some(list::SIMULATOR),
                    "all" => None,
                    _ => return None,
                }
            }
            option if option.starts_with('-') => return None,
            name => choice.names.push(name.to_owned()),
        }
    }
    Some(choice)
}

fn carry_out(choice: &Choice) -> io::Result<u8> {
    let mutants = chosen(list::read_all()?, choice)?;
    if choice.list {
        mutants.iter().for_each(|mutant| println!("{}\n    {}", mutant.name, mutant.what));
        return Ok(0);
    }
    let began = Instant::now();
    let mut first = Workshop::open(0)?;
    let (limits, red) = green_first(&mut first, &mutants)?;
    let count = mutants.len();
    let waiting = Mutex::new(mutants.into_iter().enumerate().collect::<VecDeque<_>>());
    let verdicts = Mutex::new(Vec::new());
    let work = |mut workshop: Workshop| -> io::Result<()> {
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some((number, mutant)) = next else { return Ok(()) };
            let verdict = judge(&mut workshop, mutant, &limits, number + 1, count)?;
            eprintln!("{:>3} of {count}  {}", number + 1, verdict.in_one_line());
            verdicts.lock().unwrap_or_else(PoisonError::into_inner).push((number, verdict));
        }
    };
    std::thread::scope(|scope| -> io::Result<()> {
        let others: Vec<_> = (1..choice.jobs)
            .map(|number| scope.spawn(move || Workshop::open(number).and_then(work)))
            .collect();
        let mut done = vec![work(first)];
        done.extend(others.into_iter().map(|other| {
            other.join().unwrap_or_else(|_| Err(io::Error::other("a thread ended early")))
        }));
        done.into_iter().collect()
    })?;
    let mut verdicts = verdicts.into_inner().unwrap_or_else(PoisonError::into_inner);
    verdicts.sort_by_key(|(number, _)| *number);
    let verdicts: Vec<Verdict> = verdicts.into_iter().map(|(_, verdict)| verdict).collect();
    match choice.json {
        true => println!("{}", verdict::as_json(&verdicts, began.elapsed())),
        false => print!("{}", verdict::table(&verdicts, began.elapsed())),
    }
    if !red.is_empty() {
        eprintln!("killers that fail without a mutant prove nothing:\n  {}", red.join("\n  "));
    }
    Ok(verdict::exit_status(&verdicts, red.is_empty()))
}

/// The mutants that were asked for, with the killers that were asked for. Those of one crate follow
/// each other: what they have in common is built once.
fn chosen(all: Vec<Mutant>, choice: &Choice) -> io::Result<Vec<Mutant>> {
    for name in &choice.names {
        if !all.iter().any(|mutant| mutant.is_named(name)) {
            return Err(io::Error::other(format!("there is no mutant `{name}`")));
        }
    }
    let mut mutants = all;
    mutants.retain(|mutant| {
        choice.names.is_empty() || choice.names.iter().any(|name| mutant.is_named(name))
    });
    for mutant in &mut mutants {
        mutant.killers.retain(|killer| choice.kind.is_none_or(|kind| killer.kind() == kind));
    }
    mutants.sort_by(|a, b| (&a.file, &a.name).cmp(&(&b.file, &b.name)));
    Ok(mutants)
}

/// Runs each killer on the unchanged tree. Yields how long each of those that succeed may take with
/// a bug, and what is wrong with the others.
fn green_first(
    workshop: &mut Workshop,
    mutants: &[Mutant],
) -> io::Result<(HashMap<Killer, Patience>, Vec<String>)> {
    let mut killers: Vec<&Killer> = mutants.iter().flat_map(|mutant| &mutant.killers).collect();
    killers.sort();
    killers.dedup();
    let mut limits = HashMap::new();
    let mut red = Vec::new();
    for (number, killer) in killers.iter().enumerate() {
        eprintln!("{:>3} of {}  unchanged tree: {killer}", number + 1, killers.len());
        let program = workshop.program(killer).map_err(|error| {
            io::Error::other(format!("the unchanged tree does not build: {error}"))
        })?;
        let began = Instant::now();
        match run_killer(workshop, killer, &program, Patience::with(GREEN_MAX))? {
            KillerEnd::Green => {
                limits.insert((*killer).clone(), Patience::with(began.elapsed()));
            }
            KillerEnd::Red(by) => red.push(format!("{killer}: {by}")),
            KillerEnd::Empty => red.push(format!("{killer}: no test has this name")),
        }
    }
    Ok((limits, red))
}

/// Puts the mutant in, runs its killers until one fails, and takes it out.
fn judge(
    workshop: &mut Workshop,
    mutant: Mutant,
    limits: &HashMap<Killer, Patience>,
    number: usize,
    count: usize,
) -> io::Result<Verdict> {
    let (mut build, mut ran) = (Duration::ZERO, Duration::ZERO);
    let mut fate = Fate::Survived;
    if mutant.killers.is_empty() {
        fate = Fate::NotTried;
    } else {
        workshop.put_in(&mutant)?;
    }
    for killer in &mutant.killers {
        let Some(patience) = limits.get(killer).copied() else { continue };
        eprintln!("{number:>3} of {count}  {}: {killer}", mutant.name);
        let began = Instant::now();
        let program = workshop.program(killer);
        build += began.elapsed();
        let program = match program {
            Ok(program) => program,
            Err(error) => {
                fate = Fate::DoesNotBuild(error.to_string());
                break;
            }
        };
        let began = Instant::now();
        let end = run_killer(workshop, killer, &program, patience)?;
        ran += began.elapsed();
        if let KillerEnd::Red(by) = end {
            fate = Fate::Killed { kind: killer.kind(), by };
            break;
        }
    }
    workshop.take_out(&mutant)?;
    Ok(Verdict { mutant, fate, build, ran })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_names_may_be_mixed_and_anything_else_is_refused() {
        let choice = parse(&["--jobs", "2", "half-a-unit", "--killer", "sim", "--json"]).unwrap();
        assert_eq!((choice.jobs, choice.kind, choice.json), (2, Some(list::SIMULATOR), true));
        assert_eq!((choice.names, choice.list), (vec!["half-a-unit".to_owned()], false));
        for wrong in [&["--jobs", "0"][..], &["--jobs"], &["--killer", "luck"], &["--fast"]] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    fn mutant(name: &str, file: &str, killers: Vec<Killer>) -> Mutant {
        Mutant {
            name: name.into(),
            list: "log".into(),
            what: "a bug".into(),
            file: file.into(),
            find: "a".into(),
            replace: "b".into(),
            killers,
            survives: None,
        }
    }

    #[test]
    fn mutants_are_chosen_by_name_or_list_and_those_of_one_file_follow_each_other() {
        let all = || {
            let unit = Killer::unit("towline-log", None, "a_test");
            let simulator = Killer::Simulator { kind: "model".into(), seeds: "0..9".into() };
            vec![
                mutant("z", "crates/a.rs", vec![unit.clone(), simulator]),
                mutant("b", "crates/b.rs", vec![unit.clone()]),
                mutant("a", "crates/a.rs", vec![unit]),
            ]
        };
        let names = |arguments: &[&str]| -> io::Result<Vec<(String, usize)>> {
            let mutants = chosen(all(), &parse(arguments).unwrap())?;
            Ok(mutants.into_iter().map(|it| (it.name, it.killers.len())).collect())
        };
        let pairs = |of: &[(&str, usize)]| -> Vec<(String, usize)> {
            of.iter().map(|(name, killers)| ((*name).to_owned(), *killers)).collect()
        };
        assert_eq!(names(&[]).unwrap(), pairs(&[("a", 1), ("z", 2), ("b", 1)]));
        assert_eq!(names(&["--killer", "sim", "z", "b"]).unwrap(), pairs(&[("z", 1), ("b", 0)]));
        assert_eq!(names(&["log"]).unwrap().len(), 3);
        assert!(names(&["unknown"]).is_err());
    }
}
