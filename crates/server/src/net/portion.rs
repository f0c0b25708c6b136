//! What of a connection's requests goes into one step of the instance, and what of it adds to the
//! log.
//!
//! What comes with one read may be thousands of requests, and all other clients wait for the step
//! that takes them. Not here: when the rest has its turn (`connection`).

use towline_node::Request;
use towline_types::limits;

/// How many of the requests make the next step: one at least, if there is one.
pub(super) fn of_step(requests: &[Request]) -> usize {
    let mut bytes = 0;
    let fits = |request: &&Request| {
        let fits = bytes < limits::STEP_BYTES_MAX;
        bytes += content_bytes(request);
        fits
    };
    requests.iter().take(limits::STEP_REQUESTS_MAX).take_while(fits).count()
}

/// Whether something among them adds to the log: a persistent message.
pub(super) fn adds_to_log(requests: &[Request]) -> bool {
    requests.iter().any(|request| match request {
        // One that leaves it to its queue counts as what it nearly always is.
        Request::Put { message, .. } => message.persistent == Some(true),
        _ => false,
    })
}

/// Bytes of what they bring.
pub(super) fn bytes(requests: &[Request]) -> usize {
    requests.iter().map(content_bytes).sum()
}

fn content_bytes(request: &Request) -> usize {
    match request {
        Request::Put { message, .. } => message.content.len(),
        Request::Settle { annotations: Some(map), .. } => map.encoded_bytes(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use towline_amqp::codec::{Map, Value};
    use towline_core::{ConsumerId, MessageSequence, NewMessage, Outcome};
    use towline_node::{LinkToken, PutTo};
    use towline_types::Payload;

    use super::*;

    fn put(bytes: usize, persistent: Option<bool>) -> Request {
        let content = Payload::from(Bytes::from(vec![b'x'; bytes]));
        let message = NewMessage { persistent, content, ..NewMessage::default() };
        let target = PutTo::Name("Q".to_owned());
        Request::Put { token: 1, target, message, unit: None, reply_wanted: true }
    }

    fn puts(count: usize, bytes: usize) -> Vec<Request> {
        (0..count).map(|_| put(bytes, None)).collect()
    }

    #[test]
    fn a_step_takes_so_many_requests_and_so_many_bytes_and_one_request_in_any_case() {
        assert_eq!(of_step(&[]), 0);
        assert_eq!(of_step(&puts(limits::STEP_REQUESTS_MAX, 1)), limits::STEP_REQUESTS_MAX);
        assert_eq!(of_step(&puts(limits::STEP_REQUESTS_MAX + 1, 1)), limits::STEP_REQUESTS_MAX);
        assert_eq!(of_step(&puts(3, limits::STEP_BYTES_MAX / 2)), 2);
        assert_eq!(of_step(&puts(3, limits::STEP_BYTES_MAX / 2 - 1)), 3);
        assert_eq!(of_step(&puts(2, 2 * limits::STEP_BYTES_MAX)), 1);
    }

    #[test]
    fn annotations_of_outcomes_count_as_messages_do() {
        let text = "x".repeat(limits::MODIFIED_ANNOTATIONS_BYTES_MAX - 32);
        let settle = || Request::Settle {
            consumer: ConsumerId(1),
            sequence: MessageSequence(1),
            outcome: Outcome::Modified { failed: false, undeliverable_here: false },
            unit: None,
            annotations: Some(Box::new(Map::default().with("x-opt", Value::String(&text)))),
            settled: true,
            link: LinkToken(1),
            reply_wanted: false,
        };
        let most = limits::STEP_BYTES_MAX / limits::MODIFIED_ANNOTATIONS_BYTES_MAX;
        let requests: Vec<Request> = (0..2 * most).map(|_| settle()).collect();
        assert!((most..most + 2).contains(&of_step(&requests)), "{}", of_step(&requests));
    }

    #[test]
    fn only_persistent_messages_add_to_the_log() {
        let declare = || Request::Declare { token: 1 };
        assert!(!adds_to_log(&[declare(), put(1, None), put(1, Some(false))]));
        assert!(adds_to_log(&[declare(), put(1, Some(true)), put(1, None)]));
    }
}
