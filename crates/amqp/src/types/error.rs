//! The error type of AMQP (2.8.14): what a detach, end or close and a rejected outcome carry.

use std::sync::Arc;

use super::Symbol;
use crate::codec::{Composite, DecodeError, Fields, FieldsWriter, Map};

/// Why something ended or was rejected.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// One of [`super::condition`], or a symbol of the peer's own.
    pub condition: Symbol,
    /// For people.
    pub description: Option<Arc<str>>,
    /// Further facts, for example where a redirect leads.
    pub fields: Map,
}

impl Error {
    /// An error with a description and no further facts.
    #[must_use]
    pub fn new(condition: Symbol, description: &str) -> Error {
        Error { condition, description: Some(Arc::from(description)), fields: Map::default() }
    }
}

impl Composite for Error {
    const CODE: u8 = 0x1d;
    const NAME: &'static str = "amqp:error:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<Error, DecodeError> {
        Ok(Error {
            condition: fields.symbol()?.ok_or(DecodeError::MissingField("condition"))?.into(),
            description: fields.string()?.map(Arc::from),
            fields: fields.map()?,
        })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.symbol(Some(&self.condition));
        fields.string(self.description.as_deref());
        fields.map(&self.fields);
    }
}
