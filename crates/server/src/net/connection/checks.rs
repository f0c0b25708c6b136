//! Long messages are checked on threads for work that blocks, so that the other connections of this
//! thread go on.
//!
//! Only two at a time, in order: more threads would leave this one too little of the processor.
//! What waits is bounded like all long messages on their way in (`towline_engine::Arrivals`).
//!
//! Not here: what is checked, and what waits behind it (`towline_node::Front`).

use std::future::Future;
use std::pin::Pin;
use std::task::Context;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use towline_node::{CheckedMessage, MessageCheck};
use towline_types::Time;

use super::ConnectionTask;

/// For all connections of the process.
pub(in crate::net) static CHECKS: Semaphore = Semaphore::const_new(CHECKS_MAX as usize);
/// Checks that run at the same time.
pub(in crate::net) const CHECKS_MAX: u32 = 2;

/// The answer, when it comes; none when the runtime ends.
pub(super) type MessageAnswer = Pin<Box<dyn Future<Output = Option<CheckedMessage>>>>;

async fn answer(check: MessageCheck) -> Option<CheckedMessage> {
    let _permit = CHECKS.acquire().await.ok()?;
    tokio::task::spawn_blocking(move || check.run()).await.ok()
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    /// Has a message checked, and puts it when it was. True when it was.
    pub(super) fn poll_check(&mut self, context: &mut Context<'_>, now: Time) -> bool {
        if let Some(check) = self.front.take_check() {
            self.checking = Some(Box::pin(answer(check)));
        }
        let Some(checking) = &mut self.checking else { return false };
        let std::task::Poll::Ready(checked) = checking.as_mut().poll(context) else {
            return false;
        };
        self.checking = None;
        self.go_on_behind(checked, now);
        true
    }

    fn go_on_behind(&mut self, checked: Option<CheckedMessage>, now: Time) {
        let Some(checked) = checked else {
            self.end_of_input = true;
            return;
        };
        let mut input = std::mem::take(&mut self.partial);
        self.front.checked(now, checked, &mut input, &mut self.requests);
        self.partial = input;
    }

    /// The connection is over: what it had sent before is put all the same.
    pub(super) async fn finish_checks(&mut self) {
        while self.front.is_checking() {
            if let Some(check) = self.front.take_check() {
                self.checking = Some(Box::pin(answer(check)));
            }
            let Some(checking) = self.checking.take() else { return };
            let checked = checking.await;
            if checked.is_none() {
                return;
            }
            self.go_on_behind(checked, self.clock.now());
        }
    }
}
