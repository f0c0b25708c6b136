//! What a change of roles leaves: a report on the instance that carried it out, a row in the status
//! of every instance, figures for Prometheus. And the drill, which goes there and back under load,
//! also when instances are killed in the middle of it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use towline_e2e::daemon::Site;
use towline_e2e::regions::{EAST, LONG, Regions, RegionsDesign, WEST};
use towline_e2e::slow_net::command::{Command as Order, Ways};
use towline_e2e::{Try, paths, require, wait};

const SMALL: &str = "[log]\nextent_bytes = 4194304\n";
const OBJECTIVES: &str = "rpo_bytes = 100000000\nrpo_s = 60\nrto_s = 60\n";
const METRICS_PORT: u16 = 9157;

fn of(size: usize) -> RegionsDesign {
    let (config, recovery) = (SMALL.into(), OBJECTIVES.into());
    RegionsDesign { size, config, recovery, has_clients: true }
}

fn put(regions: &Regions, group: usize, count: usize) -> Try {
    let active = regions.until_active(group)?;
    let lines = "a line\n".repeat(count);
    let arguments = ["put", "Q", "--lines", "--transaction", "20"];
    regions.site(group, active).runs_with(&arguments, lines.as_bytes(), 0).map(drop)
}

/// Orders something of regions where it is to be ordered, when nothing stands in its way.
fn ordered(regions: &Regions, (group, at): (usize, usize), what: &[&str]) -> Try<Value> {
    let site = regions.site(group, at);
    let dry = [&["region"], what, &["--dry-run"]].concat();
    wait::until_true("nothing in the way", LONG, || site.runs(&dry, 0).is_ok())
        .map_err(|error| regions.explained(&error.to_string()))?;
    let arguments = [&["region"], what, &["--yes", "--json"]].concat();
    let said = site.runs(&arguments, 0);
    let said = said.map_err(|error| regions.explained(&error.to_string()))?;
    Ok(serde_json::from_str(&said)?)
}

/// The newest report of an instance, which `file` names.
fn report_of(site: &Site, file: &Value) -> Try<Value> {
    let said = site.runs(&["region", "report", "--json"], 0)?;
    let report: Value = serde_json::from_str(&said)?;
    let file = Path::new(file.as_str().ok_or("no file was named")?);
    require!(
        fs::read_to_string(file)?.contains(report["name"].as_str().unwrap_or("?")),
        "{report}"
    );
    for file in [file.to_owned(), file.with_extension("html")] {
        let mode = fs::metadata(&file)?.permissions().mode() & 0o777;
        require!(mode == 0o600, "{}: {mode:o}", file.display());
    }
    Ok(report)
}

fn steps(way: &Value) -> Vec<String> {
    let steps = way["steps"].as_array().cloned().unwrap_or_default();
    steps.iter().filter_map(|step| step["step"].as_str().map(str::to_owned)).collect()
}

/// What stands in the status of an instance about changes of roles: kind, from, to, by.
fn changes(regions: &Regions, group: usize, at: usize) -> Try<Vec<[String; 4]>> {
    let said = regions.site(group, at).runs(&["status", "--groups", "--json"], 0)?;
    let groups: Value = serde_json::from_str(&said)?;
    let rows = groups[0]["role_changes"].as_array().cloned().unwrap_or_default();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    Ok(rows.iter().map(|row| ["kind", "from", "live", "by"].map(|key| text(row, key))).collect())
}

#[test]
fn changes_of_roles_leave_reports_and_stand_in_the_status_of_every_instance() -> Try {
    let mut regions = Regions::towed(&of(3))?;
    put(&regions, WEST, 200)?;
    let active = regions.until_active(WEST)?;
    let done = ordered(&regions, (WEST, active), &["switch"])?;
    regions.until_towed_by(EAST)?;
    let site = regions.site(WEST, active);
    let report = report_of(site, &done["report_file"])?;
    require!(report["outcome"] == "done" && report["verdict"] == "met", "{report}");
    require!(report["kind"] == "switch" && report["ways"][0]["loss"]["bytes"] == 0, "{report}");
    let of_way = ["shipped", "closed", "received", "decided", "acknowledged", "followed"];
    require!(steps(&report["ways"][0]) == of_way, "{report}");
    let at_risk = &report["ways"][0]["at_risk"];
    require!(at_risk["bytes"].is_u64() && at_risk["puts"].is_u64(), "{report}");
    let by = report["by"].as_str().unwrap_or_default().to_owned();
    require!(!by.is_empty(), "{report}");

    // The page stands alone.
    let page = site.scratch().join("report.html");
    site.runs(&["region", "report", "--html", &page.display().to_string()], 0)?;
    let page = fs::read_to_string(page)?;
    require!(page.contains("<svg") && !page.contains("<script"), "{page}");
    let list = site.runs(&["region", "report", "--list"], 0)?;
    require!(list.lines().count() == 1 && list.contains("objectives met"), "{list}");

    // East is lost, and west promotes itself.
    regions.order(WEST, Order::Cut(Ways::Both));
    for at in 0..3 {
        regions.kill(EAST, at)?;
    }
    let done = ordered(&regions, (WEST, 0), &["failover"])?;
    let report = report_of(regions.site(WEST, 0), &done["report_file"])?;
    require!(report["kind"] == "failover" && report["outcome"] == "done", "{report}");
    let of_way = ["asked", "marked", "elected", "serving"];
    require!(steps(&report["ways"][0]) == of_way, "{report}");
    require!(report["ways"][0]["from"] == "EAST", "{report}");
    regions.until_active(WEST)?;
    let row = |kind: &str, from: &str, to: &str| {
        [kind.to_owned(), from.to_owned(), to.to_owned(), by.clone()]
    };
    let wanted = [row("failover", "EAST", "WEST"), row("switch", "WEST", "EAST")];
    for at in 0..3 {
        wait::until_true("both in the status", LONG, || {
            changes(&regions, WEST, at).is_ok_and(|seen| seen == wanted)
        })
        .map_err(|error| format!("{error}: {:?}", changes(&regions, WEST, at)))?;
    }
    let text = regions.site(WEST, 1).runs(&["status", "--groups"], 0)?;
    require!(text.contains("ROLE CHANGE") && text.contains("failover"), "{text}");

    // The old live group comes back with no tail, and knows of both from the log.
    regions.order(WEST, Order::Heal(Ways::Both));
    for at in 0..3 {
        regions.start(EAST, at)?;
    }
    for at in 0..3 {
        wait::until_true("both in the log of east", LONG, || {
            changes(&regions, EAST, at).is_ok_and(|seen| seen == wanted)
        })
        .map_err(|error| {
            regions.explained(&format!("{error}: {:?}", changes(&regions, EAST, at)))
        })?;
    }
    regions.stop_all()
}

#[test]
fn a_switch_that_is_taken_back_and_a_return_leave_reports_too() -> Try {
    let mut regions = Regions::towed(&of(1))?;
    put(&regions, WEST, 100)?;
    regions.until_towed()?;
    regions.until_east_says_that_it_is_in_sync()?;
    regions.order(EAST, Order::Stall(Ways::Back));
    put(&regions, WEST, 20)?;
    let arguments = ["region", "switch", "--yes", "--json", "--timeout", "1"];
    let refused = regions.site(WEST, 0).runs(&arguments, 1)?;
    require!(refused.contains("it was taken back") && refused.contains("(report: "), "{refused}");
    let report = regions.site(WEST, 0).runs(&["region", "report", "--json"], 0)?;
    let report: Value = serde_json::from_str(&report)?;
    require!(report["outcome"] == "taken_back" && report["verdict"] == "missed", "{report}");
    require!(steps(&report["ways"][0]).contains(&"taken_back".to_owned()), "{report}");

    // East is promoted without the end of the log, and west gives it up.
    regions.order(EAST, Order::Cut(Ways::Both));
    put(&regions, WEST, 20)?;
    regions.kill(WEST, 0)?;
    ordered(&regions, (EAST, 0), &["failover"])?;
    put(&regions, EAST, 20)?;
    regions.start(WEST, 0)?;
    regions.order(EAST, Order::Heal(Ways::Both));
    let done = ordered(&regions, (WEST, 0), &["rejoin", "--discard-divergence"])?;
    let report = report_of(regions.site(WEST, 0), &done["report_file"])?;
    require!(report["kind"] == "rejoin" && report["outcome"] == "done", "{report}");
    let loss = &report["ways"][0]["loss"];
    require!(loss["bytes"].as_u64() > Some(0), "{report}");
    require!(
        loss["note"].as_str().is_some_and(|note| note.contains("without an export")),
        "{loss}"
    );
    let list = regions.site(WEST, 0).runs(&["region", "report", "--list", "--json"], 0)?;
    require!(serde_json::from_str::<Vec<Value>>(&list)?.len() == 2, "{list}");
    regions.stop_all()
}

/// Puts whole units at whichever of these addresses takes them, until it is to end; what was
/// acknowledged.
fn load(urls: &[String], input: &Path, ends: &AtomicBool) -> Try<u64> {
    let mut acknowledged = 0;
    for url in urls.iter().cycle() {
        while !ends.load(Ordering::SeqCst) {
            let mut command = Command::new(paths::towline()?);
            command.args(["put", "Q", "--lines", "--transaction", "20", "--timeout", "3"]);
            command.args(["--url", url]).stdin(File::open(input)?);
            if !command.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success() {
                break;
            }
            acknowledged += 20;
        }
        if ends.load(Ordering::SeqCst) {
            break;
        }
    }
    Ok(acknowledged)
}

/// A drill under load; `during` is called with the instance that was active when it was ordered.
fn drilled(during: impl Fn(&mut Regions, usize) -> Try) -> Try<(Regions, Value)> {
    let mut regions = Regions::towed(&of(3))?;
    put(&regions, WEST, 100)?;
    regions.until_towed()?;
    let active = regions.until_active(WEST)?;
    let site = regions.site(WEST, active);
    let input = site.scratch().join("twenty");
    fs::write(&input, "a line\n".repeat(20))?;
    let all = [WEST, EAST].into_iter().flat_map(|group| (0..3).map(move |at| (group, at)));
    let urls: Vec<String> =
        all.map(|(group, at)| format!("amqp://{}", regions.site(group, at).listen)).collect();
    let dry = ["region", "drill", "--dry-run"];
    wait::until_true("nothing in the way", LONG, || site.runs(&dry, 0).is_ok())
        .map_err(|error| regions.explained(&error.to_string()))?;
    let arguments = ["region", "drill", "--stay", "12s", "--yes", "--json"];
    let mut command = site.towline(&arguments)?;
    let ends = AtomicBool::new(false);
    let (output, acknowledged) = thread::scope(|scope| -> Try<_> {
        let puts = scope.spawn(|| load(&urls, &input, &ends).map_err(|error| error.to_string()));
        let mut drilled = || -> Try<_> {
            let drill = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            during(&mut regions, active)?;
            Ok(drill.wait_with_output()?)
        };
        let output = drilled();
        ends.store(true, Ordering::SeqCst);
        let acknowledged = puts.join().map_err(|_| "a client panicked")??;
        Ok((output?, acknowledged))
    })?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    require!(output.status.success(), "{}", regions.explained(&format!("{said}\n{output:?}")));
    let report: Value = serde_json::from_str(&said)?;
    println!("{acknowledged} beside the drill: {report}");
    let live = regions.until_active(WEST)?;
    let depth = regions.site(WEST, live).queue_number("Q", "depth")?;
    // One unit may have been committed without an answer to its client, in each change.
    let most = 100 + acknowledged + 20 * 4;
    require!((100 + acknowledged..=most).contains(&depth), "{acknowledged} acknowledged, {depth}");
    let rows = changes(&regions, WEST, live)?;
    let kinds: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    require!(kinds == ["drill_return", "drill"], "{rows:?}");
    require!(report["outcome"] == "done" && report["kind"] == "drill", "{report}");
    let probe = &report["probe"];
    require!(probe["lost"] == 0 && probe["doubled"] == 0, "{report}");
    require!(probe["confirmed"].as_u64() > Some(20), "{report}");
    for way in 0..2 {
        let way = &report["ways"][way];
        require!(way["rto_by"] == "probe" && way["rto_ms"].as_u64() > Some(0), "{report}");
        require!(steps(way).contains(&"first_put".to_owned()), "{report}");
    }
    Ok((regions, report))
}

#[test]
fn a_drill_goes_there_and_back_under_load_and_loses_nothing() -> Try {
    let (mut regions, report) = drilled(|_, _| Ok(()))?;
    require!(report["verdict"] == "met", "{report}");
    let file = report["report_file"].as_str().unwrap_or_default();
    let kept: Value = serde_json::from_str(&fs::read_to_string(file)?)?;
    require!(kept["ways"].as_array().is_some_and(|ways| ways.len() == 2), "{kept}");
    regions.stop_all()
}

#[test]
fn a_drill_comes_back_although_the_live_instance_and_the_relay_are_killed_in_the_middle() -> Try {
    let (mut regions, _) = drilled(|regions, ordered| {
        let live = regions.until_active(EAST)?;
        regions.kill(EAST, live)?;
        regions.start(EAST, live)?;
        regions.until_active(EAST)?;
        let relay = wait::until("a relay of west", LONG, || regions.relay_of(WEST))?;
        // The instance that was asked is the one at which the command looks.
        let killed = if relay == ordered { (ordered + 1) % 3 } else { relay };
        regions.kill(WEST, killed)?;
        regions.start(WEST, killed)
    })?;
    regions.stop_all()
}

#[test]
fn a_drill_that_cannot_come_back_says_where_it_stands() -> Try {
    let mut regions = Regions::towed(&of(1))?;
    put(&regions, WEST, 100)?;
    regions.until_towed()?;
    let site = regions.site(WEST, 0);
    let dry = ["region", "drill", "--dry-run"];
    wait::until_true("nothing in the way", LONG, || site.runs(&dry, 0).is_ok())?;
    let arguments = ["region", "drill", "--stay", "6s", "--timeout", "8", "--yes", "--json"];
    let mut command = site.towline(&arguments)?;
    let drill = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    regions.until_active(EAST)?;
    regions.until_towed_by(EAST)?;
    regions.order(WEST, Order::Cut(Ways::Both));
    let output = drill.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    require!(output.status.code() == Some(1), "{output:?}");
    require!(said.contains("group EAST is live, and group WEST follows it"), "{said}");
    let report = regions.site(WEST, 0).runs(&["region", "report", "--json"], 0)?;
    let report: Value = serde_json::from_str(&report)?;
    require!(report["outcome"] == "not_back" && report["verdict"] == "missed", "{report}");
    // It goes on to try, and comes back when it can.
    regions.order(WEST, Order::Heal(Ways::Both));
    regions.until_active(WEST)?;
    regions.until_towed()?;
    let rows = changes(&regions, WEST, 0)?;
    require!(rows[0][0] == "drill_return", "{rows:?}");
    regions.stop_all()
}

/// Gets from a queue again and again, at whichever of these addresses serves it, while `during`
/// goes on.
fn beside_a_consumer<T>(
    (queue, urls): (&str, &[String]),
    during: impl FnOnce() -> Try<T>,
) -> Try<T> {
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let gets = scope.spawn(|| -> std::io::Result<()> {
            let program = paths::towline().map_err(std::io::Error::other)?;
            for url in urls.iter().cycle() {
                if ends.load(Ordering::SeqCst) {
                    break;
                }
                let mut command = Command::new(&program);
                command.args(["get", queue, "--all", "--timeout", "2", "--url", url]);
                command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
            }
            Ok(())
        });
        let done = during();
        ends.store(true, Ordering::SeqCst);
        gets.join().map_err(|_| "a consumer panicked")??;
        done
    })
}

#[test]
fn a_consumer_on_the_queue_of_a_drill_is_not_taken_for_a_loss() -> Try {
    let mut regions = Regions::towed(&of(1))?;
    put(&regions, WEST, 20)?;
    regions.until_towed()?;
    let urls: Vec<String> = [WEST, EAST]
        .iter()
        .map(|group| format!("amqp://{}", regions.site(*group, 0).listen))
        .collect();
    // The queue of the drill is there, and open, as an earlier version left it.
    let site = regions.site(WEST, 0);
    site.mqsc("DEFINE QLOCAL(SYSTEM.REGION.DRILL)")?;
    let drill = |queue: &str, more: &[&str]| -> Try<Value> {
        let site = regions.site(WEST, 0);
        let dry = ["region", "drill", "--dry-run"];
        wait::until_true("nothing in the way", LONG, || site.runs(&dry, 0).is_ok())?;
        let arguments = [&["region", "drill", "--stay", "5s", "--yes", "--json"], more].concat();
        let said = beside_a_consumer((queue, &urls), || site.runs(&arguments, 0))
            .map_err(|error| regions.explained(&error.to_string()))?;
        Ok(serde_json::from_str(&said)?)
    };
    let report = drill("SYSTEM.REGION.DRILL", &[])?;
    let probe = &report["probe"];
    require!(probe["confirmed"].as_u64() > Some(20), "{report}");
    require!(probe["lost"] == 0 && probe["missing"] == 0, "{report}");
    require!(report["verdict"] == "met", "{report}");
    // A queue that others use.
    regions.until_towed()?;
    let report = drill("Q", &["--queue", "Q"])?;
    let probe = &report["probe"];
    require!(probe["lost"].is_null() && probe["missing"].as_u64() > Some(0), "{report}");
    require!(report["verdict"] == "not_judged", "{report}");
    require!(report["findings"].to_string().contains("others may have got them"), "{report}");
    regions.stop_all()
}

/// What Prometheus would read at an instance.
fn scraped(regions: &Regions, group: usize, at: usize) -> Try<String> {
    let host = regions.site(group, at).listen.rsplit_once(':').ok_or("no port")?.0.to_owned();
    let mut stream = TcpStream::connect((host.as_str(), METRICS_PORT))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    require!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    Ok(answer)
}

fn metric(text: &str, name: &str) -> Option<f64> {
    let start = format!("towline_region_{name}{{");
    let line = text.lines().find(|line| line.starts_with(&start))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn metrics_are_what_the_status_says_and_the_interval_has_its_real_length() -> Try {
    let mut regions = Regions::plan(&of(1))?;
    for group in [WEST, EAST] {
        let site = regions.site_mut(group, 0);
        let host = site.listen.rsplit_once(':').ok_or("no port")?.0.to_owned();
        site.config += &format!("\n[metrics]\naddress = \"{host}:{METRICS_PORT}\"\n");
    }
    for group in [EAST, WEST] {
        regions.start(group, 0)?;
    }
    put(&regions, WEST, 300)?;
    let seen = regions.until_towed()?;
    let text = scraped(&regions, WEST, 0)?;
    let wanted = [
        ("connected", 1.0),
        ("in_sync", 1.0),
        ("backlog_bytes", 0.0),
        ("backlog_put_messages", 0.0),
        ("rpo_bytes", 100_000_000.0),
        ("rpo_seconds", 60.0),
        ("rto_seconds", 60.0),
        ("rpo_missed", 0.0),
        ("role_changes_total", 0.0),
    ];
    for (name, value) in wanted {
        require!(metric(&text, name) == Some(value), "{name} is not {value}: {text}");
    }
    let sent = seen["log_bytes_sent"].as_f64();
    require!(metric(&text, "log_sent_bytes_total") >= sent && sent > Some(0.0), "{text}");
    require!(text.contains("role=\"live\"} 1\n"), "{text}");
    let recovery = scraped(&regions, EAST, 0)?;
    require!(recovery.contains("role=\"recovery\"} 1\n"), "{recovery}");
    require!(metric(&recovery, "redirects_total") == Some(0.0), "{recovery}");
    // A client is sent to live.
    let site = regions.site(EAST, 0);
    let url = format!("amqp://{}", site.listen);
    site.runs(&["put", "Q", "x", "--url", &url], 1)?;
    let after = scraped(&regions, EAST, 0)?;
    require!(metric(&after, "redirects_total") == Some(1.0), "{after}");

    // Nothing arrives: what is at risk grows, and is what the status says.
    regions.order(EAST, Order::Cut(Ways::Both));
    put(&regions, WEST, 40)?;
    // The counts are looked at now and then.
    let text = wait::until("what is at risk", LONG, || {
        let text = scraped(&regions, WEST, 0).ok()?;
        (metric(&text, "backlog_put_messages") == Some(40.0)).then_some(text)
    })?;
    let seen = regions.east_as_seen()?;
    require!(metric(&text, "backlog_bytes") == seen["backlog_bytes"].as_f64(), "{text}\n{seen}");
    regions.order(EAST, Order::Heal(Ways::Both));
    regions.until_towed()?;

    let interval = wait::until("an interval", LONG, || {
        let interval = regions.east_as_seen().ok()?["interval"].clone();
        interval.is_object().then_some(interval)
    })?;
    let us = interval["interval_us"].as_u64().unwrap_or(0);
    require!(us >= 10_000_000, "{interval}");
    let table = regions.site(WEST, 0).runs(&["status", "--groups"], 0)?;
    require!(
        table.contains("Backlog average bytes") && table.contains("RECOVERY, interval of"),
        "{table}"
    );

    let done = ordered(&regions, (WEST, 0), &["switch"])?;
    require!(done["report_file"].is_string(), "{done}");
    regions.until_towed_by(EAST)?;
    let text = scraped(&regions, EAST, 0)?;
    require!(metric(&text, "role_changes_total") == Some(1.0), "{text}");
    require!(text.contains("role=\"live\"} 1\n"), "{text}");
    regions.stop_all()
}
