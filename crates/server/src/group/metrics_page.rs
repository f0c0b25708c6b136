//! The metrics of two regions over HTTP/1.1, for Prometheus: `GET /metrics` and nothing else.
//!
//! Any host that reaches the port can open a connection and send nothing, or read nothing. These
//! time out soon, and are evicted at once for others: no number of them blocks a scrape.
//!
//! Not here: names and values (`towline_admin::metrics`). Invariants: what a client sends is
//! bounded in bytes and in time, and so is the number of clients; nothing that it sends changes
//! anything; a connection has one answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;
use towline_admin::catalogue::METRICS_NOT_SERVED;
use towline_admin::metrics::{METRICS_CONTENT_TYPE, region_metrics};
use towline_engine::GroupView;
use towline_link::Slots;
use towline_logging::log as say;

/// Clients at once whose request has not come; for one more the oldest of the address that has most
/// is evicted.
const SILENT_MAX: usize = 64;
/// The same of those that are answered.
const ANSWERED_MAX: usize = 64;
/// Pages that are made at once. A disk that hangs may hold them up, with a thread each.
const PAGES_MAX: usize = 8;
/// Bytes of a request's head.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// Time-out of the request: a scraper sends it in its first packet.
const REQUEST_MAX: Duration = Duration::from_secs(1);
/// Time-out of the answer: the default of Prometheus for a whole scrape.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Before the address is tried again.
const BIND_PAUSE: Duration = Duration::from_secs(1);
/// Before a connection is accepted again, when the system refused one.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// Answers at this address until dropped. An address that cannot be had is tried again: no client
/// of the queue manager is to wait for one of its figures. `admits_others`: other machines may
/// read them.
pub(super) async fn serve(
    (address, admits_others): (SocketAddr, bool),
    name: String,
    view: Arc<dyn GroupView>,
) {
    let mut is_said = false;
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => {
                if !std::mem::replace(&mut is_said, true) {
                    say(&METRICS_NOT_SERVED, &[&address.to_string(), &error.to_string()]);
                }
                tokio::time::sleep(BIND_PAUSE).await;
            }
        }
    };
    accept(listener, admits_others, move || region_metrics(&name, &view.group())).await;
}

/// What all clients share.
struct Answers<P> {
    page: P,
    answered: Mutex<Slots>,
    pages: Arc<Semaphore>,
}

async fn accept<P>(listener: TcpListener, admits_others: bool, page: P)
where
    P: Fn() -> String + Send + Sync + 'static,
{
    let answers = Arc::new(Answers {
        page,
        answered: Mutex::new(Slots::new(ANSWERED_MAX)),
        pages: Arc::new(Semaphore::new(PAGES_MAX)),
    });
    let mut silent = Slots::new(SILENT_MAX);
    loop {
        let Ok((socket, peer)) = listener.accept().await else {
            tokio::time::sleep(REFUSED_PAUSE).await;
            continue;
        };
        // Through a port that is forwarded to this one, others come from loopback too.
        if !admits_others && !peer.ip().is_loopback() {
            continue;
        }
        let Some(slot) = silent.take(peer.ip()).await else { return };
        let answers = Arc::clone(&answers);
        tokio::spawn(async move {
            let mut socket = socket;
            let asked = tokio::select! {
                asked = timeout(REQUEST_MAX, asked(&mut socket)) => asked,
                () = slot.evicted() => return,
            };
            drop(slot);
            if let Ok(Ok(Some(asked))) = asked {
                answers.give(socket, peer, asked).await;
            }
        });
    }
}

impl<P: Fn() -> String + Send + Sync + 'static> Answers<P> {
    async fn give(self: Arc<Self>, socket: TcpStream, peer: SocketAddr, asked: RequestVerdict) {
        let Some(slot) = self.answered.lock().await.take(peer.ip()).await else { return };
        let page = || self.page();
        tokio::select! {
            answered = timeout(ANSWER_MAX, answer(socket, asked, page)) => {
                tracing::debug!(?answered, "a client of the metrics");
            }
            () = slot.evicted() => tracing::debug!("a client of the metrics was evicted"),
        }
    }

    /// The page, made beside: a disk that hangs may keep the status waiting.
    async fn page(self: &Arc<Self>) -> Option<String> {
        let permit = Arc::clone(&self.pages).acquire_owned().await.ok()?;
        let answers = Arc::clone(self);
        let made = tokio::task::spawn_blocking(move || {
            // Held until it is made, also when its client has gone.
            let _permit = permit;
            (answers.page)()
        });
        made.await.ok()
    }
}

/// Whether only the head of the page is wanted, or what is wrong with the request.
type RequestVerdict = Result<bool, &'static str>;

async fn answer<F: Future<Output = Option<String>>>(
    mut socket: impl AsyncWrite + Unpin,
    asked: RequestVerdict,
    page: impl FnOnce() -> F,
) -> io::Result<()> {
    let answer = match asked {
        Ok(is_head) => match page().await {
            None => response("503 Service Unavailable", "text/plain", "no status\n", false),
            Some(text) => response("200 OK", METRICS_CONTENT_TYPE, &text, is_head),
        },
        Err(status) => response(status, "text/plain", &format!("{status}\n"), false),
    };
    socket.write_all(answer.as_bytes()).await?;
    socket.shutdown().await
}

/// What a client asks for; `None`: nothing.
async fn asked(socket: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<RequestVerdict>> {
    let mut head = Vec::new();
    loop {
        let mut chunk = [0; 1_024];
        let count = socket.read(&mut chunk).await?;
        head.extend(chunk.iter().take(count));
        let is_whole = head.windows(4).any(|end| end == b"\r\n\r\n");
        if is_whole {
            return Ok(Some(judged(&head)));
        }
        if count == 0 {
            return Ok(None);
        }
        if head.len() >= REQUEST_BYTES_MAX {
            return Ok(Some(Err("431 Request Header Fields Too Large")));
        }
    }
}

fn judged(head: &[u8]) -> Result<bool, &'static str> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = str::from_utf8(line).map_err(|_| "400 Bad Request")?;
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    if words.next().is_some() || !version.is_some_and(|version| version.starts_with("HTTP/1.")) {
        return Err("400 Bad Request");
    }
    let path = target.and_then(|target| target.split('?').next());
    match (method, path) {
        (Some("GET"), Some("/metrics")) => Ok(false),
        (Some("HEAD"), Some("/metrics")) => Ok(true),
        (Some("GET" | "HEAD"), _) => Err("404 Not Found"),
        _ => Err("405 Method Not Allowed"),
    }
}

fn response(status: &str, kind: &str, body: &str, is_head: bool) -> String {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let length = body.len();
    let body = if is_head { "" } else { body };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is answered to these bytes, behind which the client sends no more.
    fn answered(request: &[u8]) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut client, mut server) = tokio::io::duplex(64 * 1024);
            client.write_all(request).await.unwrap();
            client.shutdown().await.unwrap();
            match asked(&mut server).await.unwrap() {
                Some(asked) => {
                    answer(server, asked, || async { Some("m 1\n".to_owned()) }).await.unwrap();
                }
                None => drop(server),
            }
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            answer
        })
    }

    #[test]
    fn the_page_is_given_to_a_get_and_its_head_to_a_head() {
        let page = answered(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        assert!(page.contains("\r\nContent-Length: 4\r\n") && page.ends_with("\r\n\r\nm 1\n"));
        let head = answered(b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n");
        assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn anything_else_is_refused_and_bounded() {
        let long = [b"GET /metrics HTTP/1.1\r\n".as_slice(), &vec![b'x'; 9_000]].concat();
        let cases: [(&[u8], &str); 7] = [
            (b"GET / HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"\xff\xfe /metrics HTTP/1.1\r\n\r\n", "400"),
            (b"GET /metrics SPDY\r\n\r\n", "400"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
            (&long, "431"),
        ];
        for (request, status) in cases {
            let answer = answered(request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
            assert!(!answer.contains("m 1"));
        }
        assert_eq!(answered(b"GET /metrics HTTP/1.1\r\n"), "", "half a request has no answer");
    }

    /// Asks, and reads all of the answer.
    async fn scrape(at: SocketAddr) -> String {
        let mut client = TcpStream::connect(at).await.unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[test]
    fn silent_connections_keep_no_scrape_waiting_and_end_soon() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let at = listener.local_addr().unwrap();
            let accepting = tokio::spawn(accept(listener, false, || "m 1\n".to_owned()));
            let mut silent = Vec::new();
            for _ in 0..3 * SILENT_MAX {
                silent.push(TcpStream::connect(at).await.unwrap());
            }
            // A scrape has ten seconds at Prometheus.
            let page = timeout(ANSWER_MAX, scrape(at)).await.expect("a scrape waits");
            assert!(page.starts_with("HTTP/1.1 200 OK") && page.ends_with("m 1\n"), "{page}");
            for mut client in silent {
                let ended = timeout(Duration::from_secs(60), client.read(&mut [0; 1])).await;
                // It is closed, with or without a reset.
                assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
            }
            accepting.abort();
        });
    }

    #[test]
    fn pages_that_hang_hold_up_no_more_threads_than_there_may_be() {
        let (asked, release) =
            (Arc::new(std::sync::Mutex::new(0)), std::sync::mpsc::channel::<()>());
        let (release, gate) = (release.0, std::sync::Mutex::new(release.1));
        let counted = Arc::clone(&asked);
        let answers = Arc::new(Answers {
            page: move || {
                *counted.lock().unwrap() += 1;
                gate.lock().unwrap().recv().ok();
                "m 1\n".to_owned()
            },
            answered: Mutex::new(Slots::new(ANSWERED_MAX)),
            pages: Arc::new(Semaphore::new(PAGES_MAX)),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let given_up = Duration::from_millis(50);
            for _ in 0..3 * PAGES_MAX {
                // Its client goes away.
                assert!(timeout(given_up, answers.page()).await.is_err());
            }
            assert!(*asked.lock().unwrap() <= PAGES_MAX);
            drop(release);
            assert_eq!(answers.page().await.as_deref(), Some("m 1\n"), "it goes on");
        });
    }
}
