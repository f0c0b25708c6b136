//! The metrics of two regions over HTTP/1.1, for Prometheus: `GET /metrics` and nothing else.
//!
//! Not here: names and values (`towline_admin::metrics`). Invariants: what a client sends is
//! bounded in bytes and in time, and so is the number of clients; nothing that it sends changes
//! anything; a connection has one answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use towline_admin::catalogue::METRICS_NOT_SERVED;
use towline_admin::metrics::{METRICS_CONTENT_TYPE, region_metrics};
use towline_engine::GroupView;
use towline_logging::log as say;

/// Clients at once; one more waits.
const CLIENTS_MAX: usize = 8;
/// Bytes of a request's head.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// A client has so long for all of it.
const CONVERSATION_MAX: Duration = Duration::from_secs(10);
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
    let (name, places) = (Arc::<str>::from(name), Arc::new(Semaphore::new(CLIENTS_MAX)));
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
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((socket, peer)) = listener.accept().await else {
            tokio::time::sleep(REFUSED_PAUSE).await;
            continue;
        };
        // Through a port that is forwarded to this one, others come from loopback too.
        if !admits_others && !peer.ip().is_loopback() {
            continue;
        }
        let (name, view) = (Arc::clone(&name), Arc::clone(&view));
        tokio::spawn(async move {
            // A disk that hangs may keep the status waiting.
            let made = move || region_metrics(&name, &view.group());
            let page = || async move { tokio::task::spawn_blocking(made).await.ok() };
            let answered = timeout(CONVERSATION_MAX, answer(socket, page)).await;
            tracing::debug!(?answered, "a client of the metrics");
            drop(place);
        });
    }
}

async fn answer<F: Future<Output = Option<String>>>(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    page: impl FnOnce() -> F,
) -> io::Result<()> {
    let answer = match asked(&mut socket).await? {
        None => return Ok(()),
        Some(Ok(is_head)) => match page().await {
            None => response("503 Service Unavailable", "text/plain", "no status\n", false),
            Some(text) => response("200 OK", METRICS_CONTENT_TYPE, &text, is_head),
        },
        Some(Err(status)) => response(status, "text/plain", &format!("{status}\n"), false),
    };
    socket.write_all(answer.as_bytes()).await?;
    socket.shutdown().await
}

/// Whether only the head of the page is wanted, or what is wrong with the request; `None`: there
/// was none.
async fn asked(
    socket: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<Result<bool, &'static str>>> {
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
            let (mut client, server) = tokio::io::duplex(64 * 1024);
            client.write_all(request).await.unwrap();
            client.shutdown().await.unwrap();
            answer(server, || async { Some("m 1\n".to_owned()) }).await.unwrap();
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
}
