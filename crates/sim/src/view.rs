//! What an instance holds, as a browser sees it: for comparing instances with each other and with
//! the history.
//!
//! Not here: what is right (`history`).

use std::fmt;

use bytes::Bytes;
use towline_admin::status::Status;
use towline_core::{Body, ConnectionId, Delivery};
use towline_node::{
    Input, Instance, Journal, LinkToken, Outbound, Request, Response, Restart, Terminus,
};
use towline_types::{Lsn, Time};

use crate::disk::Disk;
use crate::journal::NoJournal;

/// A connection that no client has.
const VIEWER: ConnectionId = ConnectionId(u64::MAX);

/// A message as a browser sees it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) queue: String,
    pub(crate) sequence: u64,
    pub(crate) priority: u8,
    pub(crate) persistent: bool,
    pub(crate) backouts: u32,
    pub(crate) content: Bytes,
}

impl fmt::Debug for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { queue, sequence, priority, persistent, backouts, content } = self;
        let number = content.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        write!(out, "{queue}/{sequence}: message {number:?}, {} bytes, ", content.len())?;
        write!(out, "priority {priority}, persistent {persistent}, backouts {backouts}")
    }
}

/// All bytes of a delivery's body.
pub(crate) fn content_of(body: &Body, disk: &Disk) -> Option<Bytes> {
    match body {
        Body::Memory(content) => Some(content.clone()),
        Body::Log(location) => disk.body(*location),
        Body::Chunks(chunks) => {
            let chunks: Option<Vec<Bytes>> = chunks.iter().map(|at| disk.body(*at)).collect();
            Some(Bytes::from(chunks?.concat()))
        }
        Body::Incoming(_) | Body::Announced { .. } => None,
    }
}

/// Looks into all these queues.
///
/// # Errors
/// A body or page that cannot be read, in words.
pub(crate) fn browse(
    instance: &mut Instance,
    disk: &Disk,
    now: Time,
    journal: &dyn Journal,
    queues: &[String],
) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for queue in queues {
        let container = "viewer".to_owned();
        let address = String::new();
        let requests = vec![
            Request::Connected { container, user: None, address, sole: false },
            Request::OpenConsumer {
                link: LinkToken(0),
                terminus: Terminus::Queue(queue.clone()),
                browse: true,
                selector: None,
                exclusive: None,
            },
        ];
        let mut viewer = Viewer { instance, disk, now, journal };
        let opened = viewer.ask(requests)?;
        let opened = opened.into_iter().find_map(|response| match response {
            Response::ConsumerOpened { result, .. } => Some(result),
            _ => None,
        });
        // A queue that is not there has no messages.
        let opened = opened.ok_or("a browser was not answered")?;
        if let Ok(consumer) = opened.map(|opened| opened.consumer) {
            let credit = Request::Credit { consumer, limit: 1_000_000, drain: false, flow: 0 };
            for response in viewer.ask(vec![credit])? {
                if let Response::Deliver(delivery) = response {
                    rows.push(viewer.row(queue, &delivery)?);
                }
            }
        }
        viewer.ask(vec![Request::Disconnect { lost: false }])?;
    }
    Ok(rows)
}

/// The status that an administrator is shown.
pub(crate) fn depths(
    instance: &mut Instance,
    disk: &Disk,
    now: Time,
    journal: &dyn Journal,
) -> Result<Vec<(String, u64)>, String> {
    let mut viewer = Viewer { instance, disk, now, journal };
    let request =
        Request::Admin { token: 0, kind: "status".into(), text: String::new(), owner: true };
    let answers = viewer.ask(vec![request])?;
    let json = answers.into_iter().find_map(|response| match response {
        Response::Admin(reply) => Some(reply.json),
        _ => None,
    });
    let status: Result<Status, _> = serde_json::from_str(&json.unwrap_or_default());
    let status = status.map_err(|error| error.to_string())?;
    Ok(status.queues.into_iter().map(|queue| (queue.name, queue.depth)).collect())
}

/// Ends a restart (of a replica that is not needed any more) and looks at what it holds.
pub(crate) fn look_into(
    restart: Restart,
    tail: Lsn,
    disk: &Disk,
    now: Time,
    queues: &[String],
) -> Result<Vec<Row>, String> {
    let mut instance = restart.finish(tail);
    browse(&mut instance, disk, now, &NoJournal, queues)
}

struct Viewer<'a> {
    instance: &'a mut Instance,
    disk: &'a Disk,
    now: Time,
    journal: &'a dyn Journal,
}

impl Viewer<'_> {
    fn ask(&mut self, mut requests: Vec<Request>) -> Result<Vec<Response>, String> {
        let mut out = Outbound::default();
        let input = Input::Requests { connection: VIEWER, requests: &mut requests };
        self.instance.step(self.now, input, self.journal, &mut out);
        self.work(&mut out);
        while let Some(request) = out.pages.pop() {
            let content = self.disk.page(request.page);
            let content = content.ok_or_else(|| format!("page {:?} is gone", request.page))?;
            let input = Input::Page { request, content: &content };
            self.instance.step(self.now, input, self.journal, &mut out);
            self.work(&mut out);
            if let Some(error) = &out.damage {
                return Err(format!("page {:?} is damaged: {error}", request.page));
            }
        }
        let routed = out.routed.into_iter().filter(|routed| routed.connection == VIEWER);
        Ok(routed.map(|routed| routed.response).collect())
    }

    fn work(&mut self, out: &mut Outbound) {
        while self.instance.has_work() {
            let input = Input::Work { units: &mut { 1_000_000 } };
            self.instance.step(self.now, input, self.journal, out);
        }
    }

    fn row(&self, queue: &str, delivery: &Delivery) -> Result<Row, String> {
        let sequence = delivery.sequence.0;
        let content = content_of(&delivery.body, self.disk);
        let content = content
            .ok_or_else(|| format!("body {:?} of message {sequence} is gone", delivery.body))?;
        Ok(Row {
            queue: queue.to_owned(),
            sequence,
            priority: delivery.priority,
            persistent: delivery.persistent,
            backouts: delivery.backout_count,
            content,
        })
    }
}
