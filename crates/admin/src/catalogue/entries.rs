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
    STARTING = "TWL1001I" "Queue manager '{name}' version {version} is starting, data in {folder}.",
        "The process began. Recovery of the log follows.";
    READY = "TWL1002I" "Queue manager '{name}' is ready after {milliseconds} ms.",
        "Recovery is complete and clients are accepted.";
    LISTENING = "TWL1003I" "Listening on {address}.",
        "A listener accepts clients at this address.";
    QUIESCING = "TWL1004I" "Queue manager '{name}' is quiescing.",
        "The process was told to end (SIGTERM or SIGINT). Clients are told that the connection is \
         forced to close; units of work in progress may end. A second signal ends at once.";
    ENDING_NOW = "TWL1005W" "Queue manager '{name}' is ending at once.",
        "A second signal arrived, or quiescing took too long. Open units of work are rolled back; \
         nothing that was acknowledged is lost.";
    ENDED = "TWL1006I" "Queue manager '{name}' ended.",
        "The log is closed. The next start is quick.";
    CONFIGURATION_REFUSED = "TWL1010E" "Configuration {file} is refused: {reason}.",
        "The queue manager does not start with a configuration that it does not understand. Mend \
         the line that the text names.";
    FOLDER_IN_USE = "TWL1011E" "Data folder {folder} is in use by process {process}.",
        "Two processes must never share a data folder. End the other process, or choose another \
         folder with --data.";
    LISTEN_FAILED = "TWL1012E" "Cannot listen on {address}: {reason}.",
        "Another program may hold the port. Choose another with --listen, or port 0 for any free \
         one.";
    TLS_REFUSED = "TWL1013E" "TLS settings are refused: {reason}.",
        "A certificate or key could not be read or does not fit. The files are named in [tls] of \
         the configuration.";
    START_FAILED = "TWL1014E" "Queue manager '{name}' cannot start: {reason}.",
        "The text says why. Nothing was changed in the data folder.";
    FATAL = "TWL1019E" "Queue manager '{name}' halts: {reason}.",
        "A rule inside the product was broken, so it stopped before it could do harm. Keep the \
         data folder and the log lines, start again, and report it.";

    RECOVERY_STARTED = "TWL2001I" "Reading the recovery log from {position}.",
        "Restart begins at the newest image of the definitions and reads what was logged since.";
    RECOVERY_ENDED = "TWL2002I" "Recovery log read: {records} records, {bytes} bytes in {time} ms.",
        "All that was committed is back. The time does not include opening the listeners.";
    TAIL_CUT = "TWL2003I" "The last batch of the log, at {position}, was torn and is cut off.",
        "The process or the machine stopped while it was writing. Nobody had been told that this \
         batch was durable, so nothing acknowledged is lost.";
    LOG_DAMAGED = "TWL2004E" "The recovery log is damaged in {extent} at {position}: {reason}.",
        "Bytes before the tail are not what was written: the disk or somebody changed them. The \
         queue manager does not start rather than skip messages. Run 'towline log verify', and \
         restore the extent from a copy.";
    LOG_FULL = "TWL2005E" "The recovery log is full: {bytes} bytes. Puts are refused.",
        "Messages that wait in queues hold the log, or the disk is full. Gets go on and make room; \
         so does more disk, or a larger log limit in the configuration.";
    LOG_HAS_ROOM = "TWL2006I" "The recovery log has room again. Puts are accepted.",
        "What filled the log is gone.";
    DISK_FULL = "TWL2007E" "The disk of {folder} is full: {reason}. Puts are refused.",
        "No extent could be added to the log. Nothing acknowledged is lost. Make room on the disk; \
         the queue manager goes on by itself.";
    LOG_WRITE_FAILED = "TWL2008E" "Writing the recovery log failed: {reason}. The process halts.",
        "After a failed write or sync it is unknown what is on the disk, so the queue manager stops \
         and acknowledges nothing more. Check the disk, then start again.";
    LOG_SLOW = "TWL2009W" "A write of the recovery log took {milliseconds} ms.",
        "The disk, or something else on the machine, held up the log; every persistent put waited \
         for it.";
    EXTENTS_REUSED = "TWL2010I" "{count} extents of the recovery log can be reused.",
        "All messages that these extents held are gone.";
    IMAGE_TAKEN = "TWL2011I" "Image of the definitions taken at {position}.",
        "Restart begins here from now on.";

    CONNECTED = "TWL3001I" "Client '{container}' connected from {address} as {user}.",
        "A connection was opened.";
    DISCONNECTED = "TWL3002I" "Client '{container}' from {address} disconnected: {reason}.",
        "A connection ended. When it was lost, its messages in flight were backed out.";
    LOGIN_REFUSED = "TWL3003W" "Login from {address} as '{user}' with {mechanism} was refused.",
        "Wrong password, unknown user, or a mechanism that is not offered. The client cannot see \
         which of them.";
    LOGIN_TIMEOUT = "TWL3004W" "{address} did not log in within {seconds} s and was closed.",
        "A client that does not speak, or no client at all.";
    TOO_MANY_CONNECTIONS = "TWL3005W" "Connection from {address} refused: {count} are open.",
        "A limit of connections was reached, for one address or for all. It stands in the \
         configuration.";
    PROTOCOL_ERROR = "TWL3006W" "{address} broke the protocol: {condition}: {reason}.",
        "The connection was closed. Nobody else is affected.";
    IDLE_TIMEOUT = "TWL3007W" "{address} was silent for longer than {seconds} s and was closed.",
        "The client, its machine or the network is gone. What it had in flight was backed out.";
    TLS_FAILED = "TWL3008W" "TLS with {address} failed: {reason}.",
        "The handshake did not succeed, or the stream broke.";

    DEAD_LETTERED = "TWL5001W" "A message of queue '{queue}' went to '{target}': {reason}.",
        "It was backed out too often, rejected, or expired. The message carries the reason.";
    NO_DEAD_LETTER_QUEUE = "TWL5002W" "Queue '{queue}' has nowhere to send bad messages: {reason}.",
        "DEADQ (or BOQNAME) is not set, does not exist, or is full. The message stays where it is. \
         Define the queue, then ALTER QMGR DEADQ.";
    UNIT_ROLLED_BACK = "TWL5003W" "A unit of work of {client} was rolled back: {reason}.",
        "It was open for too long or held up the log. The client learns of it when it next uses \
         the unit.";
    QUEUE_AUTO_DEFINED = "TWL5004I" "Queue '{queue}' was defined by rule '{pattern}'.",
        "A client used a name that no queue had, and auto_define allows it.";
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
    UNIT_DOOMED = "TWL5040E" "{reason}.",
        "A put or a get inside the unit was refused, so that committing the rest would halve it.";
    TOO_MANY_UNITS = "TWL5022E" "{reason}.", "One connection opened too many units of work.";
    ALREADY_EXISTS = "TWL5023E" "{reason}.", "DEFINE without REPLACE found the object.";
    WRONG_TYPE = "TWL5024E" "{reason}.", "The object exists, but is of another type.";
    OBJECT_OPEN = "TWL5025E" "{reason}.", "DISPLAY QSTATUS shows how often it is open.";
    NOT_EMPTY = "TWL5026E" "{reason}.", "DELETE does not throw messages away unless told so.";
    UNCOMMITTED = "TWL5027E" "{reason}.", "DISPLAY QSTATUS shows how many in UNCOM.";
    BAD_ATTRIBUTE = "TWL5028E" "{reason}.", "The value is outside its range.";
    MEMORY_FULL = "TWL5029E" "{reason}.",
        "Non-persistent messages live in memory, and it has a limit.";
    LOG_FULL_REFUSED = "TWL5030E" "{reason}.", "See TWL2005E and TWL2007E.";
    ENDING_REFUSED = "TWL5031E" "{reason}.", "The queue manager was told to end.";
    NOT_AUTHORIZED = "TWL5032E" "{reason}.", "The user may not do this.";
    OBJECT_DELETED = "TWL5033E" "{reason}.", "The object went away while it was open.";

    QUEUE_CREATED = "TWL8006I" "Queue '{name}' created.", "DEFINE was carried out and logged.";
    QUEUE_DELETED = "TWL8007I" "Queue '{name}' deleted.", "DELETE was carried out and logged.";
    QUEUE_CHANGED = "TWL8008I" "Queue '{name}' changed.", "ALTER was carried out and logged.";
    QUEUE_MANAGER_CHANGED = "TWL8009I" "Queue manager '{name}' changed.",
        "ALTER QMGR was carried out and logged.";
    QUEUE_CLEARED = "TWL8010I" "Queue '{name}' cleared.",
        "All messages of the queue were removed.";
    COMMAND_RUN = "TWL8011I" "{user} ran: {command}",
        "An administrator's command that changes something, for the audit.";
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
