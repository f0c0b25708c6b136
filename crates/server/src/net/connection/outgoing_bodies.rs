//! Bodies of deliveries on their way out: from memory, from the log, or from another instance of
//! the group when they are damaged here.
//!
//! Not here: the order in which deliveries have their turn (`towline_node`).

use std::task::Context;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use towline_core::{Body, Refusal, SetAside};
use towline_engine::bodies;
use towline_log::LogError;
use towline_node::Response;
use towline_types::Time;

use super::{BodyRead, ConnectionTask};

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    /// Bytes of bodies that are on their way to the socket.
    pub(super) fn departing_bytes(&self) -> u64 {
        self.reading_bytes + (self.output_waiting() + self.front.begun_bytes()) as u64
    }

    /// Carries out one response. False when it must wait: there is no memory for its body now.
    pub(super) fn respond(
        &mut self,
        context: &mut Context<'_>,
        now: Time,
        response: Response,
    ) -> bool {
        let Response::Deliver(delivery) = &response else {
            self.front.respond(now, response, None, &mut self.requests);
            return true;
        };
        let bytes = towline_engine::bytes_of(&delivery.body);
        if towline_engine::is_large(bytes)
            && !self.departure.may_begin(context, self.departing_bytes(), bytes)
        {
            self.postponed = Some(response);
            return false;
        }
        self.is_group_asked = false;
        match bodies::resident(&self.log, &delivery.body) {
            Some(body) => self.front.respond(now, response, Some(body), &mut self.requests),
            None => {
                let body = delivery.body.clone();
                self.reading_bytes = bytes;
                self.read(body, response);
            }
        }
        true
    }

    fn read(&mut self, body: Body, response: Response) {
        let log = self.log.clone();
        let read = tokio::task::spawn_blocking(move || bodies::read(&log, &body));
        self.reading = Some((read, response));
    }

    /// Reads what is damaged here when another instance of the group was asked for it: on a thread
    /// of its own, so that other clients' reads go on.
    fn read_from_group(&self, body: &Body) -> Option<BodyRead> {
        let repairs = self.door.repairs()?;
        let (answer, answered) = oneshot::channel();
        let (log, body, parts) = (self.log.clone(), body.clone(), bodies::parts(body));
        let again = move |_| {
            // The connection may be gone meanwhile.
            answer.send(bodies::read(&log, &body)).ok();
        };
        repairs.request(parts, Box::new(again));
        let stopped = |_| Err(LogError::Stopped);
        Some(tokio::spawn(async move { answered.await.unwrap_or_else(stopped) }))
    }

    /// A body is not where it was: it may have been logged again meanwhile. What is damaged is
    /// fetched from another instance of the group. When it really cannot be read, the message is
    /// set aside, and its credit serves another one; when it cannot be set aside the link ends with
    /// the reason. What was set aside before is delivered as a note.
    pub(super) fn read_elsewhere(&mut self, response: Response, error: &LogError) {
        let Response::Deliver(mut delivery) = response else { return };
        let (queue, sequence) = (delivery.queue, delivery.sequence);
        let now_at = self.door.look(|instance| instance.body_now(queue, sequence));
        let stays = now_at.as_ref().is_some_and(|body| *body == delivery.body);
        if error.is_damage()
            && stays
            && !std::mem::replace(&mut self.is_group_asked, true)
            && let Some(read) = self.read_from_group(&delivery.body)
        {
            self.reading = Some((read, Response::Deliver(delivery)));
            return;
        }
        match now_at {
            Some(body) if body != delivery.body => {
                self.is_group_asked = false;
                delivery.body = body.clone();
                self.read(body, Response::Deliver(delivery));
            }
            Some(_) if bodies::is_note(&delivery) => {
                let now = self.clock.now();
                let place = error.to_string();
                let origin = delivery.dead_letter.as_ref().map(|it| it.origin.clone());
                let origin = origin.as_deref().unwrap_or_default();
                self.front.deliver_note(now, delivery, origin, &place, &mut self.requests);
            }
            None => self.front.not_sent(delivery.consumer, &mut self.requests),
            Some(_) => {
                let consumer = delivery.consumer;
                match self.door.unreadable(queue, sequence, Some(consumer), error) {
                    SetAside::Gone | SetAside::Moved { .. } => {
                        self.front.not_sent(consumer, &mut self.requests);
                    }
                    SetAside::Browsed { queue } => {
                        let (now, place) = (self.clock.now(), error.to_string());
                        self.front.deliver_note(now, delivery, &queue, &place, &mut self.requests);
                    }
                    SetAside::Stays { queue } => {
                        // At once: what waits behind it must not go to this link any more.
                        let (place, moved) = (error.to_string(), false);
                        let reason = Refusal::MessageDamaged { queue, place, moved };
                        let closed = Response::ConsumerClosed { consumer, reason };
                        let now = self.clock.now();
                        self.front.respond(now, closed, None, &mut self.requests);
                    }
                }
            }
        }
    }
}
