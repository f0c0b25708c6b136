//! Names for things that are counted. Each is a type of its own so that they never mix.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
    };
}

id!(
    /// One client connection, for as long as the process lives. Never reused.
    ConnectionId(u64)
);
id!(
    /// One consumer or browser (a link on which messages leave). Never reused in a process.
    ConsumerId(u64)
);
id!(
    /// One open unit of work. Never reused in a process, and never matched late.
    UnitId(u64)
);
id!(
    /// One incarnation of a queue: a queue that is deleted and defined again has a new one.
    /// Durable.
    QueueId(u32)
);
id!(
    /// The position of a message in the order of the whole queue manager, given when its put is
    /// decided (for a unit of work: at commit). Ascends in log order. Durable, never reused.
    MessageSequence(u64)
);
id!(
    /// A put with a body that goes to the log in pieces. Never reused in a process.
    LargePutId(u64)
);
id!(
    /// A commit in parts. Its number is one of those that name bodies. Durable, never reused.
    CommitId(u64)
);
id!(
    /// A large body that goes to the log in chunks ahead of its put. Durable, never reused.
    BodyId(u64)
);
