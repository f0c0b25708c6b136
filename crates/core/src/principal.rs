//! The principal: on behalf of which user something is decided. It is known from the login of a
//! connection for as long as that lasts, and no part of it is logged.
//!
//! Not here: what a principal may do.

use std::sync::Arc;

/// On behalf of which user something is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Principal {
    /// The process itself: no client asked for it.
    Internal,
    /// A client that gave no name, or one that is not known.
    #[default]
    Anonymous,
    /// A client that logged in with this name.
    User(Arc<str>),
}

impl Principal {
    /// That of a client, by the name that it logged in with; `None`: it is anonymous.
    #[must_use]
    pub fn of_client(user: Option<&str>) -> Principal {
        user.map_or(Principal::Anonymous, |user| Principal::User(user.into()))
    }
}
