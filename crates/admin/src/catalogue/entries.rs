//! The entries of the catalogue. Only a table: no logic.

use super::Entry;

macro_rules! entries {
    ($($name:ident = $id:literal $template:literal, $explanation:literal;)*) => {
        $(
            #[doc = $template]
            pub const $name: Entry =
                Entry { id: $id, template: $template, explanation: $explanation };
        )*
        /// All of them, by id.
        pub const ALL: &[&Entry] = &[$(&$name),*];
    };
}

entries! {
    UNKNOWN_QUEUE = "TWL5010E" "{reason}.", "There is no object of that name.";
    BAD_NAME = "TWL5011E" "{reason}.", "Names have 1 to 255 bytes and no control characters.";
    BAD_ALIAS = "TWL5012E" "{reason}.", "The TARGET of an alias must be a local queue.";
    PUT_INHIBITED = "TWL5013E" "{reason}.", "The queue, or the alias to it, has PUT(DISABLED).";
    GET_INHIBITED = "TWL5014E" "{reason}.", "The queue, or the alias to it, has GET(DISABLED).";
    QUEUE_FULL = "TWL5015E" "{reason}.", "The queue holds MAXDEPTH messages.";
    MESSAGE_TOO_LONG = "TWL5016E" "{reason}.",
        "The message is longer than MAXMSGL of the queue or of the queue manager.";
    QUEUE_IN_USE = "TWL5017E" "{reason}.",
        "The queue is NOSHARE, or somebody opened it for exclusive input.";
    UNIT_TOO_MANY_MESSAGES = "TWL5018E" "{reason}.", "A unit of work passed MAXUMSGS.";
    UNIT_TOO_LARGE = "TWL5019E" "{reason}.", "A unit of work passed its limit of bytes.";
    UNIT_TOO_OLD = "TWL5020E" "{reason}.", "A unit of work passed its limit of age.";
    UNKNOWN_UNIT = "TWL5021E" "{reason}.",
        "The unit of work has ended, or was never this connection's.";
    TOO_MANY_UNITS = "TWL5022E" "{reason}.", "One connection opened too many units of work.";
    ALREADY_EXISTS = "TWL5023E" "{reason}.", "DEFINE without REPLACE found the object.";
    WRONG_TYPE = "TWL5024E" "{reason}.", "The object exists, but is of another type.";
    OBJECT_OPEN = "TWL5025E" "{reason}.", "DISPLAY QSTATUS shows how often it is open.";
    NOT_EMPTY = "TWL5026E" "{reason}.", "DELETE does not throw messages away unless told so.";
    UNCOMMITTED = "TWL5027E" "{reason}.", "DISPLAY QSTATUS shows how many in UNCOM.";
    BAD_ATTRIBUTE = "TWL5028E" "{reason}.", "The value is outside its range.";
    MEMORY_FULL = "TWL5029E" "{reason}.",
        "Non-persistent messages live in memory, and it has a limit.";
    LOG_FULL_REFUSED = "TWL5030E" "{reason}.", "See TWL7002E.";
    ENDING_REFUSED = "TWL5031E" "{reason}.", "The queue manager was told to end.";
    NOT_AUTHORIZED = "TWL5032E" "{reason}.", "The user may not do this.";
    OBJECT_DELETED = "TWL5033E" "{reason}.", "The object went away while it was open.";
    UNIT_DOOMED = "TWL5040E" "{reason}.",
        "A put or a get inside the unit was refused, so that committing the rest would halve it.";

    LOG_READ = "TWL7000I" "the recovery log was read",
        "Restart read what was logged since the newest image. The fields tell how long it took and \
         what was found; a torn tail is the last write before a crash, which nobody was told of.";
    LOG_FAILED = "TWL7001E" "the recovery log failed; the queue manager halts",
        "After a failed write or sync it is unknown what the disk holds, so nothing more is \
         acknowledged and the process ends with status 70. Check the disk, then start again.";
    LOG_FULL = "TWL7002E" "the recovery log has no room: puts are refused until messages are got or \
         the disk has room",
        "Messages that wait in queues hold the log, or the disk is full. Nothing acknowledged is \
         lost. Gets go on and make room; so does more disk. The queue manager goes on by itself.";
    LOG_LOW = "TWL7003W" "the recovery log is nearly out of room",
        "See TWL7002E, which comes next if nothing is done.";
    LOG_HAS_ROOM = "TWL7004I" "the recovery log has room again",
        "What filled the log is gone. Puts are accepted.";
    HOUSEKEEPING_FAILED = "TWL7005E" "housekeeping broke off | cannot give extents of the log back",
        "An image could not be written or an extent not be given back. Nothing is lost, but the log \
         grows. The field error says why; most often the disk is full.";
    BODY_UNREADABLE = "TWL7007E" "a message body cannot be read from the log",
        "The disk does not give back what was written. Stop the queue manager, run \
         'towline log verify', and restore the extent that it names from a copy.";
    RUN_NOT_TAKEN = "TWL7008W" "a run was not taken by the log",
        "The log is ending or has failed. What was to be logged was not acknowledged to anybody.";
    CONNECTION_REFUSED = "TWL7010W" "a connection was refused",
        "A limit of connections was reached, for one address or for all. The field why says which; \
         the limits stand in the configuration.";
    ACCEPT_FAILED = "TWL7011W" "cannot accept a connection | cannot serve a connection",
        "Most often the process has no file descriptor left: raise its limit (ulimit -n, \
         LimitNOFILE).";
    CONNECTION_NEVER_BEGAN = "TWL7013I" "a connection ended before it began",
        "A TLS handshake failed, or the peer went away at once. Logged at level debug.";
    QUIESCING = "TWL7020I" "the queue manager quiesces; a second signal ends it at once",
        "The process was told to end (SIGTERM or SIGINT). Open units of work may still end; then \
         clients are told that their connections close.";
    ENDED = "TWL7021I" "the queue manager has ended",
        "The log is closed. The next start is quick.";
    UNITS_ROLLED_BACK = "TWL7022W" "units of work were still open and are rolled back",
        "Quiescing waits only so long. Nothing that was acknowledged is lost.";
    NOBODY_READS = "TWL7023W" "nobody reads standard output",
        "The line that tells where clients come in could not be written. The field line has it.";

    QUEUE_CREATED = "TWL8006I" "Queue '{name}' created.", "DEFINE was carried out and logged.";
    QUEUE_DELETED = "TWL8007I" "Queue '{name}' deleted.", "DELETE was carried out and logged.";
    QUEUE_CHANGED = "TWL8008I" "Queue '{name}' changed.", "ALTER was carried out and logged.";
    QUEUE_MANAGER_CHANGED = "TWL8009I" "Queue manager '{name}' changed.",
        "ALTER QMGR was carried out and logged.";
    QUEUE_CLEARED = "TWL8010I" "Queue '{name}' cleared.",
        "All messages of the queue were removed.";
    NOT_FOUND = "TWL8147E" "Object '{name}' does not exist.",
        "DISPLAY was given a full name that no such object has. Names are case-sensitive: one in \
         lower case must stand in quotes.";
    NOTHING_MATCHES = "TWL8148I" "No object matches.",
        "DISPLAY was given a generic name or WHERE, and nothing fits.";
    SHOW_CONNECTION = "TWL8276I" "Display connection details.", "DISPLAY CONN.";
    SYNTAX_ERROR = "TWL8405E" "Line {line}, column {column}: {reason}",
        "The command was not understood and nothing was done. See docs/reference/mqsc.md.";
    SHOW_QUEUE_MANAGER = "TWL8408I" "Display queue manager details.", "DISPLAY QMGR.";
    SHOW_QUEUE = "TWL8409I" "Display queue details.", "DISPLAY QUEUE, QLOCAL, QALIAS, QMODEL.";
    SUMMARY = "TWL8417I" "{read} commands read, {syntax} with a syntax error, {failed} failed.",
        "The end of a script.";
    TOO_MANY_ROWS = "TWL8418W" "Only the first {count} are shown.",
        "More objects match. Name fewer of them, or add WHERE.";
    SCRIPT_TOO_LONG = "TWL8419E" "The script is longer than {bytes} bytes.",
        "Nothing was done. Send it in parts.";
    SHOW_QUEUE_STATUS = "TWL8450I" "Display queue status details.", "DISPLAY QSTATUS.";
}
