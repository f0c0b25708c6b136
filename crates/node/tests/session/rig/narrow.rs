//! A session with a window of a few frames, shared by several links, driven one small step at a
//! time. The client's side is written frame by frame: it opens the window when a test says so. It
//! checks that no frame comes beyond the window and no delivery beyond the credit.

use towline_amqp::peer::text;

use super::*;

/// One link on which messages leave.
struct NarrowLink {
    settled: bool,
    /// Deliveries that may have begun in all, and have.
    limit: u32,
    begun: u32,
}

/// See the [module](self).
pub(crate) struct Narrow {
    client: Client,
    requests: Vec<Request>,
    outbox: VecDeque<Response>,
    input: BytesMut,
    output: BytesMut,
    links: Vec<NarrowLink>,
    /// Frames that came, and that may come in all.
    frames: u32,
    frames_max: u32,
    /// Messages of which the first frame came, on links that settle in advance and on others.
    pub(crate) settled: Vec<usize>,
    pub(crate) unsettled: Vec<usize>,
    /// Beginnings of the transfer frames that came in other sessions.
    pub(crate) elsewhere: Vec<String>,
}

impl Rig {
    /// A session with links that consume from Q; each settles in advance or not. No credit yet.
    pub(crate) fn narrow(&mut self, window: u32, links: &[bool]) -> Narrow {
        let options = ClientOptions { frame_bytes_max: 512, ..ClientOptions::default() };
        let client = self.connect_with(options);
        let mut narrow = Narrow {
            client,
            requests: Vec::new(),
            outbox: VecDeque::new(),
            input: BytesMut::new(),
            output: BytesMut::new(),
            links: Vec::new(),
            frames: 0,
            frames_max: window,
            settled: Vec::new(),
            unsettled: Vec::new(),
            elsewhere: Vec::new(),
        };
        narrow.says(&format!("begin incoming-window={window}"));
        for (handle, settled) in links.iter().enumerate() {
            let mode = if *settled { "settled" } else { "unsettled" };
            narrow.says(&format!(
                "attach name=n{handle} handle={handle} role=receiver source=Q target=t \
                 snd-settle-mode={mode}"
            ));
            narrow.links.push(NarrowLink { settled: *settled, limit: 0, begun: 0 });
        }
        self.narrow_rests(&mut narrow);
        narrow
    }

    /// The instance takes what the connection asks for.
    pub(crate) fn narrow_steps(&mut self, narrow: &mut Narrow) {
        let requests = &mut narrow.requests;
        let input = Input::Requests { connection: narrow.client.id, requests };
        self.instance.step(self.now, input, &self.log, &mut self.out);
        self.slices();
        self.narrow_routes(narrow);
    }

    /// What the log has is durable.
    pub(crate) fn narrow_syncs(&mut self, narrow: &mut Narrow) {
        self.log.durable.set(self.log.tail.get());
        let durable = Lsn(self.log.durable.get());
        self.instance.step(self.now, Input::Durable(durable), &self.log, &mut self.out);
        self.narrow_routes(narrow);
    }

    fn narrow_routes(&mut self, narrow: &mut Narrow) {
        for routed in self.out.routed.drain(..) {
            if routed.connection == narrow.client.id {
                narrow.outbox.push_back(routed.response);
            }
        }
    }

    /// The connection carries out one response. False: there was nothing to do.
    pub(crate) fn narrow_responds(&mut self, narrow: &mut Narrow) -> bool {
        let front = &mut narrow.client.front;
        let response = match front.next_held(self.now, &mut narrow.requests) {
            Some(held) => Some(held),
            None => match narrow.outbox.pop_front() {
                Some(response) => front.admit(response),
                None => {
                    narrow.hears();
                    return false;
                }
            },
        };
        if let Some(response) = response {
            let body = match &response {
                Response::Deliver(delivery) => Some(self.content(&delivery.body)),
                _ => None,
            };
            let front = &mut narrow.client.front;
            front.respond(self.now, response, body, &mut narrow.requests);
        }
        narrow.hears();
        true
    }

    /// Everything until nothing more happens.
    pub(crate) fn narrow_rests(&mut self, narrow: &mut Narrow) {
        loop {
            let asks = !narrow.requests.is_empty();
            self.narrow_steps(narrow);
            self.narrow_syncs(narrow);
            if !self.narrow_responds(narrow) && !asks && narrow.requests.is_empty() {
                return;
            }
        }
    }

    /// The connection breaks, as the daemon ends it.
    pub(crate) fn narrow_breaks(&mut self, mut narrow: Narrow) -> Narrow {
        self.narrow_steps(&mut narrow);
        let mut requests = vec![Request::Disconnect { lost: true }];
        let input = Input::Requests { connection: narrow.client.id, requests: &mut requests };
        self.instance.step(self.now, input, &self.log, &mut self.out);
        self.narrow_syncs(&mut narrow);
        narrow
    }

    /// Responses that wait in the outbox of the connection.
    pub(crate) fn narrow_outbox(narrow: &Narrow) -> usize {
        narrow.outbox.len()
    }
}

impl Narrow {
    /// The client sends a frame on the second session.
    pub(crate) fn says(&mut self, line: &str) {
        self.says_on(1, line);
    }

    /// The client sends a frame on any session.
    pub(crate) fn says_on(&mut self, channel: u16, line: &str) {
        self.input.extend_from_slice(&text::encode(&format!("@{channel} {line}")));
        let now = Time(1_700_000_000_000_000);
        checks::take(&mut self.client.front, now, &mut self.input, &mut self.requests);
        self.hears();
    }

    /// The client lets so many more frames come.
    pub(crate) fn opens(&mut self, frames: u32) {
        self.frames_max += frames;
        let (next, window) = (self.frames, self.frames_max - self.frames);
        self.says(&format!("flow next-incoming-id={next} incoming-window={window}"));
    }

    /// The client gives a link credit for so many from here on, and takes back what it gave before.
    pub(crate) fn grants(&mut self, link: usize, credit: u32) {
        let begun = self.links[link].begun;
        self.links[link].limit = begun + credit;
        let (next, window) = (self.frames, self.frames_max - self.frames);
        self.says(&format!(
            "flow next-incoming-id={next} incoming-window={window} handle={link} \
             delivery-count={begun} link-credit={credit}"
        ));
    }

    /// Credit that is left on a link.
    pub(crate) fn credit(&self, link: usize) -> u32 {
        self.links[link].limit - self.links[link].begun
    }

    /// The client begins another session, with links that browse Q, and gives them credit for
    /// `credit`.
    pub(crate) fn browses(&mut self, channel: u16, window: u32, links: u32, credit: u32) {
        self.says_on(channel, &format!("begin incoming-window={window}"));
        for handle in 0..links {
            self.says_on(
                channel,
                &format!(
                    "attach name=b{channel}.{handle} handle={handle} role=receiver source=Q \
                     target=t copy"
                ),
            );
            self.says_on(
                channel,
                &format!(
                    "flow next-incoming-id=0 incoming-window={window} handle={handle} \
                     delivery-count=0 link-credit={credit}"
                ),
            );
        }
    }

    /// The client opens the window of another session, of which it got so many frames.
    pub(crate) fn opens_on(&mut self, channel: u16, got: usize, window: u32) {
        self.says_on(channel, &format!("flow next-incoming-id={got} incoming-window={window}"));
    }

    /// How often the server looked at a link that waits.
    pub(crate) fn looks(&self) -> u64 {
        self.client.front.looks()
    }

    /// Bytes of bodies that wait in memory for a window.
    pub(crate) fn begun_bytes(&self) -> usize {
        self.client.front.begun_bytes()
    }

    pub(crate) fn detaches(&mut self, link: usize) {
        self.says(&format!("detach handle={link} closed"));
    }

    /// Frames that may come now.
    pub(crate) fn window(&self) -> u32 {
        self.frames_max - self.frames
    }

    fn hears(&mut self) {
        let mut pieces = VecDeque::new();
        self.client.front.take_output(&mut pieces, usize::MAX);
        pieces.iter().for_each(|piece| self.output.extend_from_slice(piece));
        while let Some(size) = self.output.first_chunk::<4>() {
            let size = u32::from_be_bytes(*size) as usize;
            if self.output.len() < size {
                return;
            }
            let frame = self.output.split_to(size).freeze();
            let channel = u16::from_be_bytes([frame[6], frame[7]]);
            self.takes(&text::show(channel, &frame.slice(8..)));
        }
    }

    fn takes(&mut self, line: &str) {
        assert!(!line.contains("error="), "{line}");
        if !line.starts_with("@1 transfer ") {
            if line.contains(" transfer ") {
                self.elsewhere.push(line.chars().take(80).collect());
            }
            return;
        }
        self.frames += 1;
        assert!(self.frames <= self.frames_max, "a frame beyond the window: {line:.80}");
        // Only the first frame of a delivery has its id.
        if !line.contains(" delivery-id=") {
            return;
        }
        let after = |mark: &str| line.split(mark).nth(1).unwrap_or_default();
        let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
        let handle: usize = number(after(" handle=")).parse().unwrap();
        let message = number(after("text-")).parse().unwrap();
        let link = &mut self.links[handle];
        link.begun += 1;
        assert!(link.begun <= link.limit, "a delivery beyond the credit: {line:.80}");
        match link.settled {
            true => self.settled.push(message),
            false => self.unsettled.push(message),
        }
    }
}
