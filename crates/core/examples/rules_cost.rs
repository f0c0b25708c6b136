//! What the rules cost: nanoseconds for put + deliver + settle of one message, with the facts
//! applied and no log. `cargo run --release -p towline-core --example rules_cost`

use std::time::Instant;

use bytes::Bytes;
use towline_core::command::{DefineLocal, LocalChanges};
use towline_core::{
    Body, Candidate, ConnectionId, ConsumerId, ConsumerMode, ConsumerSpec, Decision, Effect, Fact,
    Filter, Limits, Match, NewMessage, Outcome, Outputs, PutTarget, QueueManager, Refusal,
    Selection, Settlement,
};
use towline_types::{BodyLocation, Lsn, Payload, Time};

const ROUNDS: u64 = 1_000_000;

struct NoFilters;

impl Selection for NoFilters {
    fn matches(&mut self, _: &Filter, _: &Candidate<'_>) -> Match {
        Match::Yes
    }
}

struct Driver {
    core: QueueManager,
    decision: Decision,
    outputs: Outputs,
    lsn: u64,
}

impl Driver {
    fn new() -> Driver {
        let (decision, outputs) = (Decision::default(), Outputs::default());
        Driver { core: QueueManager::new(Limits::default()), decision, outputs, lsn: 0 }
    }

    /// Applies what was decided, as if the log were infinitely fast.
    fn carry_out(&mut self) {
        for mut fact in self.decision.facts.drain(..) {
            if let Fact::Put { message, .. } = &mut fact
                && let Body::Incoming(payload) = &message.body
            {
                let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
                message.body = Body::Log(BodyLocation { lsn: Lsn(self.lsn), bytes });
                self.lsn += u64::from(bytes);
            }
            self.core.apply(Time(1), fact, &mut self.outputs);
        }
    }

    fn define(&mut self, name: &str) -> Result<(), Refusal> {
        let changes = LocalChanges::default();
        let define = DefineLocal { name: name.to_owned(), replace: false, like: None, changes };
        self.core.define_local(Time(1), &define, &mut self.decision)?;
        self.carry_out();
        Ok(())
    }

    fn put(
        &mut self,
        target: &PutTarget,
        content: &Bytes,
        persistent: bool,
    ) -> Result<(), Refusal> {
        let content = Payload::from(content.clone());
        let message = NewMessage { persistent: Some(persistent), content, ..NewMessage::default() };
        self.core.put(Time(1), target, message, None, &mut self.decision)?;
        self.carry_out();
        Ok(())
    }

    fn consume(&mut self, name: &str) -> Result<ConsumerId, Refusal> {
        let spec = ConsumerSpec {
            queue: name.to_owned(),
            mode: ConsumerMode::Consume,
            filter: None,
            exclusive: None,
        };
        let opened = self.core.open_get(Time(1), ConnectionId(1), &spec, &mut self.decision)?;
        Ok(opened.0)
    }

    fn round(
        &mut self,
        target: &PutTarget,
        content: &Bytes,
        persistent: bool,
    ) -> Result<(), Refusal> {
        self.put(target, content, persistent)?;
        self.core.dispatch(Time(1), &mut NoFilters, &mut self.outputs);
        let effects = std::mem::take(&mut self.outputs.effects);
        for effect in &effects {
            let Effect::Deliver(delivery) = effect else { continue };
            let settlement = Settlement {
                consumer: delivery.consumer,
                sequence: delivery.sequence,
                outcome: Outcome::Accepted,
                unit: None,
                settled: true,
                reply_wanted: false,
            };
            self.core.settle(Time(1), settlement, &mut self.decision)?;
            self.carry_out();
        }
        self.outputs.effects = effects;
        self.outputs.effects.clear();
        Ok(())
    }
}

fn measure(depth: u64, queues: u64, consumers: u64, persistent: bool) -> Result<(), Refusal> {
    let mut driver = Driver::new();
    let content = Bytes::from(vec![7_u8; 256]);
    let connection = ConnectionId(1);
    let mut targets = Vec::new();
    for number in 0..queues {
        let name = format!("Q{number}");
        driver.define(&name)?;
        let target = driver.core.open_put(Time(1), connection, &name, &mut driver.decision)?;
        targets.push(target);
    }
    for number in 0..depth {
        let target = &targets[usize::try_from(number % queues).unwrap_or(0)];
        driver.put(target, &content, persistent)?;
    }
    let mut opened = Vec::new();
    for number in 0..consumers {
        opened.push(driver.consume(&format!("Q{}", number % queues))?);
    }
    let pick = |round: u64, count: usize| usize::try_from(round).unwrap_or(0) % count;
    let started = Instant::now();
    for round in 0..ROUNDS {
        // One credit for each message: the queue stays as deep as it is.
        driver.core.set_credit(opened[pick(round, opened.len())], 1, false);
        driver.round(&targets[pick(round, targets.len())], &content, persistent)?;
    }
    let each = started.elapsed().as_nanos() / u128::from(ROUNDS);
    let kind = if persistent { "persistent" } else { "non-persistent" };
    println!(
        "depth {depth:>9}  queues {queues:>5}  consumers {consumers:>6}  {kind:<14} {each} ns"
    );
    Ok(())
}

fn main() -> Result<(), Refusal> {
    for persistent in [false, true] {
        measure(0, 1, 1, persistent)?;
        measure(1_000_000, 1, 1, persistent)?;
        measure(0, 1_000, 10_000, persistent)?;
    }
    Ok(())
}
