//! The descriptor codes of the sections of a message (AMQP 3.2).

pub(super) const HEADER: u8 = 0x70;
pub(super) const DELIVERY_ANNOTATIONS: u8 = 0x71;
pub(super) const MESSAGE_ANNOTATIONS: u8 = 0x72;
pub(super) const PROPERTIES: u8 = 0x73;
pub(super) const APPLICATION_PROPERTIES: u8 = 0x74;
pub(super) const DATA: u8 = 0x75;
pub(super) const SEQUENCE: u8 = 0x76;
pub(super) const VALUE: u8 = 0x77;
pub(super) const FOOTER: u8 = 0x78;
