//! Units of work: AMQP's local transactions (part 4).

use towline_amqp::codec::Symbols;
use towline_amqp::coordinator;
use towline_amqp::types::{
    Coordinator, CoordinatorCommand, Declare, DeliveryState, Discharge, LinkTarget, Outcome, Role,
    Source, TxnId,
};
use towline_types::Payload;

use crate::client::Client;
use crate::error::Error;

/// An open unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    pub(crate) id: TxnId,
}

impl Client {
    /// Opens a unit of work.
    ///
    /// # Errors
    /// [`Error::Refused`] when the server does not let us.
    pub fn declare(&mut self) -> Result<Unit, Error> {
        let answer = self.coordinate(&CoordinatorCommand::Declare(Declare), "declare")?;
        match answer {
            Some(DeliveryState::Declared { txn_id }) => Ok(Unit { id: txn_id }),
            other => Err(Error::Unexpected(format!("a declare was answered with {other:?}"))),
        }
    }

    /// Commits a unit of work. When this fails with [`Error::Lost`], whether it was committed is
    /// not known.
    ///
    /// # Errors
    /// [`Error::Refused`] when it was rolled back instead.
    pub fn commit(&mut self, unit: Unit) -> Result<(), Error> {
        self.discharge(unit, false, "commit")
    }

    /// Rolls a unit of work back.
    ///
    /// # Errors
    /// When the server does not know it.
    pub fn roll_back(&mut self, unit: Unit) -> Result<(), Error> {
        self.discharge(unit, true, "rollback")
    }

    fn discharge(&mut self, unit: Unit, fail: bool, what: &'static str) -> Result<(), Error> {
        let command = CoordinatorCommand::Discharge(Discharge { txn_id: unit.id, fail });
        let answer = self.coordinate(&command, what)?;
        match answer.as_ref().and_then(DeliveryState::outcome) {
            Some(Outcome::Accepted) => Ok(()),
            other => Err(Error::Unexpected(format!("a {what} was answered with {other:?}"))),
        }
    }

    /// Sends a command to the coordinator and waits for its answer.
    fn coordinate(
        &mut self,
        command: &CoordinatorCommand,
        what: &'static str,
    ) -> Result<Option<DeliveryState>, Error> {
        let link = match self.coordinator {
            Some(link) => link,
            None => {
                let mut request = self.request("unit", Role::Sender);
                request.source = Some(Box::new(Source::default()));
                let capabilities = Symbols::from_iter(["amqp:local-transactions"]);
                let coordinator = Coordinator { capabilities };
                request.target = Some(Box::new(LinkTarget::Coordinator(coordinator)));
                let link = self.attach(request)?;
                self.coordinator = Some(link);
                link
            }
        };
        self.send_payload(link, Payload::from(coordinator::message(command)), None)?;
        self.wait(what, |client| {
            let link = client.links.get(&link);
            link.is_none_or(|link| link.ended.is_some() || link.unsettled.is_empty())
        })?;
        let Some(kept) = self.links.get_mut(&link) else {
            return Err(Error::Lost("the coordinator is gone".into()));
        };
        if let Some(refusal) = kept.refusal.take() {
            return Err(refusal);
        }
        let answer = kept.answer.take();
        if let Err(error) = self.check(link) {
            self.coordinator = None;
            return Err(error);
        }
        Ok(answer)
    }
}
