//! From the first byte to the open frames: protocol headers and the SASL exchange.
//!
//! It does *not* check passwords or know users: the driver answers a `Login`, module `sasl` holds
//! the mechanisms.
//!
//! Invariant: the only way to `Frames` leads through a header that the options allow and, where
//! SASL is required, through an exchange that ended well.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use slab::Slab;
use towline_types::{Time, limits};

use crate::codec::Symbols;
use crate::connection::clock::Clock;
use crate::connection::options::{ClientOptions, ServerOptions};
use crate::connection::phase::Phase;
use crate::connection::receive::{decode_error, framing_error};
use crate::connection::{Connection, Local, Peer};
use crate::event::Event;
use crate::frame::{Frame, FrameKind, Protocol};
use crate::output::Output;
use crate::sasl::{ClientStep, SaslClient, SaslError, SaslServer, ScramCredentials, ServerStep};
use crate::session::UnfinishedDeliveries;
use crate::types::{Error, Open, SaslCode, SaslFrame, condition};

fn idle_timeout_ms(timeout: Duration) -> Option<u32> {
    let millis = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    (millis > 0).then_some(millis)
}

fn connection(phase: Phase, open: Open, server: bool, handle_max: u32, clock: Clock) -> Connection {
    assert!(open.max_frame_bytes >= limits::SASL_FRAME_BYTES_MAX, "max-frame-size below 512");
    let local = Local {
        server,
        frame_bytes_max: open.max_frame_bytes,
        channel_max: open.channel_max,
        handle_max,
    };
    Connection {
        phase,
        open: Some(Box::new(open)),
        user: None,
        peer: Peer { opened: false, channel_max: u16::MAX },
        local,
        sessions: Slab::new(),
        channels: Vec::new(),
        names: BTreeMap::new(),
        links: 0,
        unfinished: UnfinishedDeliveries::default(),
        outcomes: None,
        generation: 0,
        output: Output::new(),
        events: VecDeque::new(),
        due: Vec::new(),
        clock,
    }
}

pub(super) fn server(options: ServerOptions, now: Time) -> Connection {
    let open = Open {
        container_id: Arc::clone(&options.container_id),
        hostname: None,
        max_frame_bytes: options.frame_bytes_max,
        channel_max: options.channel_max,
        idle_timeout_ms: idle_timeout_ms(options.idle_timeout),
        outgoing_locales: Symbols::default(),
        incoming_locales: Symbols::default(),
        offered_capabilities: options.offered_capabilities.clone(),
        desired_capabilities: Symbols::default(),
        properties: options.properties.clone(),
    };
    let clock = Clock::new(now, options.login_timeout, options.idle_timeout);
    let handle_max = options.handle_max;
    connection(Phase::ServerHeader(Box::new(options)), open, true, handle_max, clock)
}

pub(super) fn client(options: ClientOptions, now: Time) -> Connection {
    let open = Open {
        container_id: Arc::clone(&options.container_id),
        hostname: options.hostname.clone(),
        max_frame_bytes: options.frame_bytes_max,
        channel_max: options.channel_max,
        idle_timeout_ms: idle_timeout_ms(options.idle_timeout),
        outgoing_locales: Symbols::default(),
        incoming_locales: Symbols::default(),
        offered_capabilities: Symbols::default(),
        desired_capabilities: options.desired_capabilities.clone(),
        properties: options.properties.clone(),
    };
    let clock = Clock::new(now, options.login_timeout, options.idle_timeout);
    let handle_max = options.handle_max;
    let mut connection = connection(Phase::AmqpHeader, open, false, handle_max, clock);
    match options.login {
        Some(login) => {
            let machine = SaslClient::new(login, options.hostname);
            connection.output.header(Protocol::Sasl.header());
            connection.phase = Phase::ClientSaslHeader(Box::new(machine));
        }
        None => connection.client_open(),
    }
    connection
}

impl Connection {
    /// Client: writes the AMQP header and our open frame behind it.
    fn client_open(&mut self) {
        self.output.header(Protocol::Amqp.header());
        self.phase = Phase::AmqpHeader;
        if let Some(open) = self.open.take() {
            self.output.open(&*open);
        }
    }

    pub(super) fn on_header(&mut self, protocol: Protocol) {
        let phase = std::mem::replace(&mut self.phase, Phase::Finished);
        self.phase = match (phase, protocol) {
            (Phase::AmqpHeader, Protocol::Amqp) => {
                if self.local.server {
                    self.output.header(protocol.header());
                }
                Phase::Frames
            }
            (Phase::ServerHeader(options), Protocol::Amqp) if !options.require_sasl => {
                self.output.header(protocol.header());
                Phase::Frames
            }
            (Phase::ServerHeader(options), Protocol::Sasl)
                if !options.sasl_mechanisms.is_empty() =>
            {
                self.output.header(protocol.header());
                let options = *options;
                let machine = SaslServer::new(
                    &options.sasl_mechanisms,
                    options.tls_identity,
                    options.nonce,
                    options.salt_secret,
                );
                self.output.sasl(&SaslFrame::Mechanisms(machine.mechanisms()));
                Phase::ServerSasl { machine: Box::new(machine), asked: false }
            }
            (Phase::ClientSaslHeader(machine), Protocol::Sasl) => Phase::ClientSasl(machine),
            (phase, _) => {
                self.phase = phase;
                let text = "a protocol header that is not welcome here";
                return self.refuse_header(Error::new(condition::NOT_ALLOWED, text));
            }
        };
    }

    /// A server answers a header that it cannot take with the one that it would (AMQP 2.2).
    pub(super) fn refuse_header(&mut self, error: Error) {
        if let Phase::ServerHeader(options) = &self.phase {
            let wanted = if options.require_sasl { Protocol::Sasl } else { Protocol::Amqp };
            self.output.header(wanted.header());
        }
        self.break_off(error);
    }

    /// Ends a connection that has no open frame to answer with a close frame.
    fn break_off(&mut self, error: Error) {
        self.report_closed(Some(error), false);
        self.finish();
    }

    pub(super) fn receive_sasl(&mut self, input: &mut BytesMut) -> bool {
        if matches!(self.phase, Phase::ServerSasl { asked: true, .. }) {
            return false;
        }
        let frame = match Frame::take(input, limits::SASL_FRAME_BYTES_MAX) {
            Ok(Some(frame)) => frame,
            Ok(None) => return false,
            Err(error) => {
                self.break_off(framing_error(error));
                return true;
            }
        };
        if frame.kind != FrameKind::Sasl {
            let text = "another frame than a SASL frame before the login";
            self.break_off(Error::new(condition::NOT_ALLOWED, text));
            return true;
        }
        match SaslFrame::decode(&frame.body) {
            Ok(frame) => self.on_sasl(&frame),
            Err(error) => self.break_off(decode_error(error)),
        }
        true
    }

    fn on_sasl(&mut self, frame: &SaslFrame) {
        match &mut self.phase {
            Phase::ServerSasl { machine, .. } => {
                let step = machine.receive(frame);
                self.on_server_step(step);
            }
            Phase::ClientSasl(machine) => match machine.receive(frame) {
                Ok(ClientStep::Send(frame)) => self.output.sasl(&frame),
                Ok(ClientStep::Finished) => self.client_open(),
                Ok(ClientStep::Refused(code)) => {
                    let why = refused_login(code);
                    let text = format!("the server refused the login: {why}");
                    self.break_off(Error::new(condition::UNAUTHORIZED_ACCESS, &text));
                }
                Err(error) => self.break_off(sasl_error(error)),
            },
            Phase::ServerHeader(_)
            | Phase::ClientSaslHeader(_)
            | Phase::AmqpHeader
            | Phase::Frames
            | Phase::Closing
            | Phase::Finished => {}
        }
    }

    fn on_server_step(&mut self, step: Result<ServerStep, SaslError>) {
        let waits = match step {
            Ok(ServerStep::Ask(claim)) => {
                self.events.push_back(Event::Login(claim));
                true
            }
            Ok(ServerStep::Send(frame)) => {
                self.output.sasl(&frame);
                false
            }
            Ok(ServerStep::Finished { outcome, user }) => {
                let code = outcome.code;
                self.output.sasl(&SaslFrame::Outcome(outcome));
                if code == SaslCode::Ok {
                    self.user = user;
                    self.phase = Phase::AmqpHeader;
                } else {
                    let text = "the login was refused";
                    self.break_off(Error::new(condition::UNAUTHORIZED_ACCESS, text));
                }
                return;
            }
            Err(error) => return self.break_off(sasl_error(error)),
        };
        if let Phase::ServerSasl { asked, .. } = &mut self.phase {
            *asked = waits;
        }
    }

    pub(super) fn login_answer(&mut self, code: SaslCode) {
        if let Phase::ServerSasl { machine, asked: true } = &mut self.phase {
            let step = machine.answer(code);
            self.on_server_step(step);
        }
    }

    pub(super) fn login_credentials(&mut self, credentials: Option<ScramCredentials>) {
        if let Phase::ServerSasl { machine, asked: true } = &mut self.phase {
            let step = machine.credentials(credentials);
            self.on_server_step(step);
        }
    }
}

/// What the outcome of a login means, for people. Servers do not say what exactly was wrong.
fn refused_login(code: SaslCode) -> &'static str {
    match code {
        SaslCode::Auth => "wrong user, password or certificate, or this user may not log in here",
        SaslCode::Sys | SaslCode::SysPerm => "it failed; its own log says why",
        SaslCode::SysTemp => "not now; try again in a moment",
        SaslCode::Ok => "it ended without a reason",
    }
}

fn sasl_error(error: SaslError) -> Error {
    Error::new(condition::UNAUTHORIZED_ACCESS, &error.to_string())
}
