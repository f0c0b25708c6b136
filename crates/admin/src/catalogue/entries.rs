//! The entries of the catalogue, but for those about regions. Only a table: no logic.

use super::Entry;

entries! {
    ENTRIES;
    STARTING = "TWL1001I" "Queue manager '{name}' version {version} is starting, data in {folder}.",
        "The process started. Recovery of the log follows.";
    READY = "TWL1002I" "Queue manager '{name}' is ready after {milliseconds} ms.",
        "Recovery is complete. Clients are served; a replica relays them to the active instance.";
    LISTENING = "TWL1003I" "Listening on {address}.", "Clients can connect to this address.";
    QUIESCING = "TWL1004I" "Queue manager '{name}' is quiescing.",
        "SIGTERM, SIGINT or `towline stop` was received. Open units of work may end, then all \
         connections are closed. A second signal ends the process at once.";
    ENDING_NOW = "TWL1005W" "Queue manager '{name}' is ending at once.",
        "A second signal arrived, or quiescing took too long. Open units of work are rolled \
         back; nothing acknowledged is lost.";
    ENDED = "TWL1006I" "Queue manager '{name}' ended.",
        "The log is closed. The next start is quick.";
    STDOUT_CLOSED = "TWL1007W" "Standard output is closed: {line}.",
        "The ready line with the addresses for clients was not written. This message has it.";
    FORMAT_LEVEL_RAISED = "TWL1008I" "The log has format level {level} from now on: versions of \
                                      towline that do not know it refuse this log.",
        "It is durable, in a group committed. To go back to an earlier version, restore a backup \
         from before. A standby instance on a shared folder that was not updated first cannot take \
         over: update it.";
    CONFIGURATION_REFUSED = "TWL1010E" "Configuration {file} is refused: {reason}",
        "The queue manager does not start with an invalid configuration. Correct the line that \
         the text names.";
    FOLDER_IN_USE = "TWL1011E" "Data folder {folder} is in use by {process}.",
        "Two processes must not share a data folder. Stop the other process, or choose another \
         folder with --data.";
    LISTEN_FAILED = "TWL1012E" "Cannot listen on {address}: {reason}.",
        "Another program may use the port. Choose another with --listen, or port 0 for any free \
         port.";
    TLS_REFUSED = "TWL1013E" "TLS settings are refused: {reason}.",
        "A certificate or key cannot be read, or the two do not match. Correct the files that \
         [[listener]] names in the configuration.";
    START_FAILED = "TWL1014E" "Queue manager '{name}' cannot start: {reason}.",
        "The data folder was not changed. Correct what the reason names and start again.";
    SYSTEM_REFUSED = "TWL1015E" "The operating system refused a thread or a signal: {reason}.",
        "Most often a limit of the process is too low (ulimit -a), or memory is used up.";
    NEWER_FORMAT = "TWL1016E" "{file} has {found}, this program reads up to {known}.",
        "A later version of towline wrote the data folder. Nothing was changed. Start it with \
         that version or a later one, or restore a backup from before the upgrade into another \
         folder.";
    RESTORE_UNFINISHED = "TWL1017E" "A restore into {folder} was not finished.",
        "The folder has no complete log. Run 'towline restore' into the same data folder once \
         more: it starts over.";
    FATAL = "TWL1019E" "Queue manager '{name}' halts: {reason}.",
        "An internal check failed, so the process stopped before it could do harm. Keep the data \
         folder and the log lines, start again, and report it.";
    MESSAGES_LEFT_OUT = "TWL1030W" "{count} further messages {id} were omitted.",
        "A client can cause this message at any rate. Ten a minute are written, then the number \
         of those omitted.";
    ENVIRONMENT_REFUSED = "TWL1031E" "The environment variable {name}={value} is refused: \
                                      {reason}.",
        "A wrong level would silence every message, errors too, so the queue manager does not \
         start. Correct the variable or unset it.";
    FEW_DESCRIPTORS = "TWL1032W" "{limit} file descriptors allow at most {reachable} \
                                  connections, not {wanted} (limits.connections_max).",
        "The process has raised its soft limit as far as it may. Raise the hard limit \
         (LimitNOFILE of systemd, ulimit -Hn) to connections_max + 256, in a group to twice \
         that; or lower limits.connections_max. Descriptors for the local socket are reserved: \
         the administrator can always connect.";
    OTHER_NAME = "TWL1033E" "Data folder {folder} belongs to queue manager '{theirs}', not to \
                             '{ours}'.",
        "The name of a queue manager is stored with its data. Start it under that name, or \
         choose another folder with --data. To rename it, stop it and remove the file 'name' in \
         the data folder.";
    RELOADED = "TWL1034I" "Reloaded: {changed}.",
        "SIGHUP or `towline reload` was received. Users, administrators, listener certificates, \
         backup.folders and logging.level now apply to new connections.";
    RELOAD_FAILED = "TWL1035E" "Reload failed, old values stay: {reason}.",
        "A file cannot be used. Correct it, then send SIGHUP or run `towline reload` once more.";
    RELOAD_LATER = "TWL1036W" "New values in {tables} of the configuration file take effect \
                               after a restart.",
        "Only [users] file and administrators, [backup] and [logging] can change while the queue \
         manager runs.";
    CLOCK_STEPPED = "TWL1050W" "The system clock was set by {seconds} s: {direction}.",
        "Time stamps and expiry follow at once: a clock set forward may have expired messages \
         early, one set back keeps them longer. Time-outs, ages of units of work and elections \
         are not affected. Check the time service of the machine.";
    NO_USER_LEFT = "TWL1051W" "No user is left in {file}: no client can log in with a password.",
        "The file had users before the reload and has none now. Open connections stay open. The \
         administrator can still use the local socket in the data folder: add users ('towline \
         user') and reload.";
    STANDING_BY = "TWL1060I" "Queue manager '{name}' is a standby: {holder} is active.",
        "Several processes share the data folder. This one waits, with its listeners closed, \
         until the active one ends, is killed, or does not renew its lease.";
    TAKING_OVER = "TWL1061I" "Queue manager '{name}' takes over with epoch {epoch}: {reason}.",
        "This process becomes the active instance. Writes of an earlier one have no effect any \
         more.";
    TAKEN_OVER = "TWL1062I" "Log folder {folder} was made from {old} in {time} ms: {links} links, \
                             {copies} copies of {bytes} bytes.",
        "Each active instance has a log folder of its own. Extents that the earlier one could \
         still write were copied; the others are hard links and use no space.";
    LEASE_LOST = "TWL1063E" "The lease of epoch {epoch} is lost: {reason}. The process halts.",
        "The process was paused, or the file system was away, for longer than the lease; or \
         another instance has taken over. Nothing was acknowledged since; what was acknowledged \
         before is in the log of the next active instance. Start the process again, as a \
         standby.";
    NO_DEAD_LETTER_QUEUE = "TWL1070W" "The dead-letter queue '{name}' does not exist.",
        "Messages that cannot be delivered have no queue to go to: they stay, or expire. Define \
         it (DEFINE QLOCAL), or name another one (ALTER QMGR DEADQ, or queue_manager.deadq).";
    NO_MODEL = "TWL1071W" "Rule '{pattern}' of auto_define names model '{model}', which does not \
                           exist.",
        "This rule defines no queue until the model exists: use DEFINE QMODEL, or name another \
         model in the configuration.";
    FOLDER_OPEN = "TWL1100W" "Other users could change folder {folder}: {reason}.",
        "They could replace the log, or the socket that administrators use. Stop the queue \
         manager, give the folder to its user (chown) with mode 700, and check that everything in \
         it belongs to that user. If a volume or a shared folder sets the owner, make sure that \
         no other user of this machine can reach it.";
    KEY_OPEN = "TWL1101W" "Every user of this machine can read or change private key {file}: its \
                           mode is {mode}.",
        "Such a user could pass for this queue manager, or for this instance in its group. Give the \
         file to the user that runs the queue manager, with mode 600 (chmod 600 FILE). If other \
         users may have read it, replace the key and its certificate. Repeated at each start and \
         reload.";
    DEFAULTS_MISSING = "TWL1102W" "Queue '{queue}', which a new queue manager has, was not \
                                   defined: {reason}.",
        "The recovery log has no free space at the first start. The queue manager runs without \
         this object, and those after it. Make free space and restart it: it then defines them, \
         unless any other object was defined meanwhile. In that case define them with DEFINE.";

    CONNECTION_STALLED = "TWL1110W" "The connection from {address} was closed: it stopped in the \
                                     middle of a large message, and others waited for the memory.",
        "All connections together have bounded memory for large messages that are being received, \
         and for those that are being sent. While other connections wait for it, a client must \
         make progress: a megabyte a second is enough, and it may be 15 s behind that (5 s with \
         messages up to 4 MiB). Check whether the program hangs or its network is too slow.";

    RECOVERY_ENDED = "TWL2002I" "Recovery log read: {records} records, {bytes} bytes in {time} ms.",
        "All committed work is restored. The time excludes opening the listeners.";
    TAIL_CUT = "TWL2003I" "The torn tail of the recovery log was cut: {finding}.",
        "The process or the machine stopped during a write, and the batch was not acknowledged. (A \
         last batch that the disk damaged after an unclean end looks the same: see the guide \
         damaged-log.)";
    LOG_DAMAGED = "TWL2004E" "The recovery log is damaged: {finding}.",
        "Bytes before the tail are not what was written: the disk or another program changed \
         them. The queue manager does not start rather than skip messages. Run 'towline log \
         verify', then follow the guide damaged-log.";
    LOG_FULL = "TWL2005E" "The recovery log is full: {bytes} bytes. Puts are refused.",
        "Messages in queues keep the log in use. Get messages, or raise log_bytes_max in the \
         configuration.";
    LOG_HAS_SPACE = "TWL2006I" "The recovery log has space. Puts are accepted again.",
        "The cause of TWL2005E or TWL2007E has ended.";
    DISK_FULL = "TWL2007E" "The disk is full; the recovery log has {bytes} bytes. Puts are \
                            refused.",
        "No extent can be added to the log. Nothing acknowledged is lost. Free disk space; the \
         queue manager then accepts puts without a restart.";
    LOG_WRITE_FAILED = "TWL2008E" "Writing the recovery log failed: {reason}. The process halts.",
        "After a failed write or fsync it is unknown what is on the disk, so the process halts \
         and acknowledges nothing more. Check the disk, then start again.";
    LOG_LOW = "TWL2012W" "The recovery log is nearly full: {bytes} bytes are in use.",
        "When it is full, puts are refused (TWL2005E, TWL2007E). Get messages, free disk space, \
         or raise log_bytes_max.";
    HOUSEKEEPING_FAILED = "TWL2013E" "Space of the recovery log cannot be reclaimed: {reason}.",
        "A checkpoint image could not be written or an extent could not be reused. Nothing is \
         lost, but the log grows. Most often the disk is full. Retried every second, logged every \
         ten minutes.";
    BODY_UNREADABLE = "TWL2014E" "A message cannot be read from the recovery log: {reason}.",
        "The cause may pass; most often the process has no file descriptor left (ulimit -n, \
         LimitNOFILE). The message stays in its queue, and its consumer gets an error.";
    MENDED = "TWL2016W" "Repaired while reading the recovery log: {finding}.",
        "An older copy replaced what was damaged. Nothing acknowledged is lost, but check the \
         disk.";

    PAGE_WRITE_FAILED = "TWL2017E" "Queues cannot be paged out of memory: {reason}.",
        "What exceeds index_bytes_max is written to pages beside the recovery log, and one could \
         not be written. Nothing is lost; memory grows with queue depth until one can. Most \
         often the disk is full. Retried.";
    PAGE_DAMAGED = "TWL2018E" "A page of a queue is damaged: {reason}. The process halts.",
        "The disk did not return what was written. Nothing acknowledged is lost: the next start \
         rebuilds the queues from the whole recovery log, which takes longer.";
    REBUILDING = "TWL2019W" "Queues are rebuilt from the whole recovery log: {reason}.",
        "The pages beside the log cannot be used. All messages are in the log itself; reading \
         all of it takes longer than an ordinary start.";
    IMAGE_TAKEN = "TWL2020I" "Image taken at {position}: {bytes} bytes and {pages} pages in \
                              {time} ms.",
        "A checkpoint image: a restart reads the log from this position on.";
    RECOVERY_GOES_ON = "TWL2021I" "Recovery log: {done} of {all} MiB read, {percent} %.",
        "A start reads the log from the newest image on, or all of it to rebuild queues.";
    BACKUP_MADE = "TWL2022I" "Backup into {folder} up to {position}: {bytes} bytes in {time} ms.",
        "All that was committed up to this position can be restored from the folder.";
    BACKUP_FAILED = "TWL2023E" "Backup into {folder} failed: {reason}.",
        "The queue manager goes on, and the previous backup is still usable. Correct the cause \
         and back up again.";
    UNIT_ENDED_FOR_LOG = "TWL2030W" "A unit of work was rolled back: the recovery log is \
                                     {percent} % full and was retained for it from {position} \
                                     on.",
        "A large unit of work has its messages in the log before it commits. When the log is \
         nearly full, the oldest such unit is rolled back, and its client gets TWL5041E. Commit \
         more often, or raise log_bytes_max.";
    LOG_LEFT_OVER = "TWL2040W" "Older extents were left in the recovery log: {finding}.",
        "An earlier attempt to reclaim them failed. No action is needed: they are reclaimed when \
         no queue has a message in them. The missing extents hold no message of a queue, or \
         TWL2060E or TWL2061W would say so.";
    LOG_EXTENT_REFUSED = "TWL2041E" "No extent can be added to the recovery log: {reason}.",
        "Retried five times a second. Extents made in advance are used first, then puts are \
         refused. Nothing acknowledged is lost. Check the permissions of the log folder, and the \
         disk.";
    EXTENT_HEADER_REPAIRED = "TWL2042W" "The header of an extent of the recovery log was damaged \
                                         and has been written again: {file}.",
        "The disk did not return what was written. All that a header says is known from the other \
         extents, so nothing is lost. Check the disk: this can happen again.";
    MESSAGE_SET_ASIDE = "TWL2050E" "A message of queue {queue} cannot be read and was moved to \
                                    the dead-letter queue: {reason}.",
        "The disk did not return what was written. Consumers go on with the next message. The \
         dead-letter queue has a note with the reason message-damaged; 'towline log repair' \
         restores the content from a backup or another instance. See the guide damaged-log.";
    MESSAGE_STAYS_DAMAGED = "TWL2051E" "A message of queue {queue} cannot be read and stays where \
                                        it is: {reason}.",
        "The disk did not return what was written, and no dead-letter queue can take the \
         message: name one (ALTER QMGR DEADQ) that exists, is PUT(ENABLED) and not full. Each \
         consumer that reaches the message is closed with an error. See the guide damaged-log.";

    MESSAGES_MISSING = "TWL2060E" "Extents of the recovery log with {count} messages are \
                                   missing: {extents}.",
        "The number after each extent counts its messages, or parts of large ones. The files \
         were deleted, or the file system lost them. The queue manager does not start rather \
         than lose messages. Put the files back, or run 'towline log repair --from' a backup of \
         this instance; in a group, 'towline instance replace' has the log copied anew. To give \
         these messages up, start with --without-missing-extents until each was set aside; notes \
         on the dead-letter queue do not count. See the guide damaged-log.";
    MESSAGES_GIVEN_UP = "TWL2061W" "Started without {count} messages, whose extents of the \
                                    recovery log are missing: {extents}.",
        "--without-missing-extents was given. Each such message is set aside as damaged when a \
         consumer reaches it (TWL2050E, TWL2051E). Until all of them are, a start without the \
         option is refused. An instance of a group gets a copy of the log from the active instance \
         instead, and leads meanwhile only when no other instance can.";

    DAMAGED_DROPPED = "TWL2062W" "{count} of the messages removed from queue '{queue}' were \
                                  damaged.",
        "CLEAR QLOCAL or DELETE QLOCAL PURGE removed messages whose content cannot be read, or \
         notes of such messages (message-damaged). 'towline log repair' cannot restore them any \
         more; a backup from before can. Messages on pages, or not read since the start, are not \
         counted.";
    BACKUP_WITH_DAMAGE = "TWL2070W" "Backup into {folder} has {count} damaged batches, as the \
                                     recovery log has: {first}.",
        "The damaged messages in them cannot be restored from it; all others can. 'towline \
         backup' ends with 1 and lists them, as 'towline backup verify' and 'towline restore' \
         do. Repair the log ('towline log repair' from an older backup or another instance), or \
         get or clear those messages; the next backup is then complete.";
    MESSAGE_BROWSED_DAMAGED = "TWL2071W" "A message of queue {queue} cannot be read and was \
                                          browsed: {reason}.",
        "The disk did not return what was written. The browser got a note instead (with the \
         property DamagedAt), and the message stays: it is set aside when a consumer reaches it \
         (TWL2050E, TWL2051E). See the guide damaged-log.";

    LOGIN_REFUSED = "TWL3003W" "Login from {address} as '{user}' with {mechanism} was refused.",
        "Wrong password, unknown user, or a user is required. The client gets no reason. \
         After three failures of one name from one address, its answers are delayed more and \
         more.";
    TOO_MANY_CONNECTIONS = "TWL3005W" "A connection from {address} was refused: {limit} is \
                                       reached.",
        "The limit is set in [limits] of the configuration. That of the local socket is fixed \
         (64); that of file descriptors is in TWL1032W. A connection that has not logged in \
         waits before it is refused.";
    TLS_FAILED = "TWL3008W" "TLS with {address} failed: {reason}.",
        "The handshake failed, or the connection broke.";
    ACCEPT_FAILED = "TWL3009W" "A connection cannot be served: {reason}.",
        "Most often the process has no file descriptor left: raise its limit (ulimit -n, \
         LimitNOFILE).";
    LISTENER_CERTIFICATE_EXPIRES = "TWL3020W" "The certificate of listener {address} expires in \
                                               {days} days, at {time}.",
        "Clients refuse an expired certificate. Replace the file: it is checked every few \
         seconds and applies to new connections. Repeated daily.";
    LISTENER_CERTIFICATE_EXPIRED = "TWL3021E" "The certificate of listener {address} expired at \
                                               {time}.",
        "Clients refuse it. Replace the file; no restart is needed. Repeated daily.";
    LISTENER_CERTIFICATE_READ = "TWL3022I" "Listener {address} has a new certificate, valid until \
                                            {time}.",
        "The files of the listener changed. The new ones apply to new connections.";
    LISTENER_CERTIFICATE_UNREADABLE = "TWL3023E" "Listener {address} keeps its certificate: \
                                                  {reason}.",
        "The files of the listener changed and cannot be used. The previous ones stay in use. \
         Correct the files.";
    LOCAL_REFUSED = "TWL3024W" "User id {uid} was refused on a socket of the data folder.",
        "Only the user that runs the queue manager and root may use the control socket, and on \
         the local socket also the members of users.local_group. The mode of the socket file \
         allows more users.";
    LOGIN_GAVE_WAY = "TWL3025W" "A connection from {address} that had not logged in was closed: \
                                 others wait.",
        "Too many connections are about to log in (limits.logins_pending_per_address_max, \
         limits.logins_pending_max), and this one was silent.";

    LINK_UP = "TWL4101I" "Link to instance '{instance}' at {address} is up; it runs version \
                          {version}.",
        "Votes and log batches can be sent to it.";
    LINK_DOWN = "TWL4102W" "Link to instance '{instance}' is down: {reason}.",
        "The instance ended, or the network to it is cut. Reconnecting is tried at most once a \
         second.";
    LINK_UNREACHABLE = "TWL4103W" "Instance '{instance}' cannot be reached at {address}: {reason}.",
        "Logged once for each reason; connecting is retried. If the instance runs, compare \
         address, group and certificates on both sides with 'towline group check'.";
    LINK_REFUSED = "TWL4104W" "A link connection from {address} was refused: {reason}.",
        "Only instances of the group may connect, each with a valid certificate of its own name, \
         and with the same names of queue manager, group and instances and the same \
         log.extent_bytes. The reason has both values; correct the wrong one. A log with another \
         extent size must be made anew: empty the data folder of an instance that has no message \
         that the others lack. A reason that names a batch: the logs of the two differ; if it is \
         logged again and again, give the instance whose log differs from that of the third one a \
         new copy ('towline instance replace'). Logged once a minute for each address and reason.";
    GROUP_CERTIFICATE_READ = "TWL4105I" "New certificates of the group are in use, valid until \
                                         {time}.",
        "The files changed. Open connections keep the old ones.";
    GROUP_CERTIFICATE_EXPIRES = "TWL4106W" "The certificate of this instance expires in {days} \
                                            days, at {time}.",
        "Replace the files that [group] names before then; no restart is needed. Repeated daily.";
    GROUP_CERTIFICATE_EXPIRED = "TWL4107E" "The certificate of this instance expired at {time}.",
        "The other instances refuse new connections with it. Replace the files that [group] \
         names; no restart is needed.";
    GROUP_CERTIFICATE_UNREADABLE = "TWL4108W" "New certificates of the group cannot be used: \
                                               {reason}.",
        "The previous ones stay in use. Correct the files: they are checked every few seconds. \
         Logged once for each reason.";
    RELAY_ENDED = "TWL4110W" "Client {address} was disconnected: {reason}.",
        "The client was connected to a replica, which could not relay it to the active instance. \
         Its connection was closed with amqp:connection:forced, so that it connects again. Logged \
         once a minute for each reason.";
    RELAY_REFUSED = "TWL4111W" "Client {address}, relayed by instance '{instance}', was refused: \
                                {reason}.",
        "Give all instances of a group the same listeners in their configurations.";
    LINK_DIFFERS = "TWL4120W" "Instance '{instance}' has a different configuration: \
                               {differences}.",
        "The instances work together, but what clients may do changes with the active instance. \
         Make the configurations equal. Logged once for each difference.";
    GROUP_NO_ACTIVE = "TWL4121W" "No instance is active: {reason}.",
        "Clients are refused (amqp:connection:forced) until a majority (two of three) is connected \
         and may vote. Logged once, when no instance was active for longer than \
         heartbeat_timeout_ms and an election.";
    GROUP_ACTIVE_AGAIN = "TWL4122I" "An instance is active again.", "Follows TWL4121W.";

    GROUP_REPLICA = "TWL4201I" "Instance '{instance}' of queue manager '{name}' is a replica.",
        "It applies what the group commits and relays clients to the active instance.";
    GROUP_LED_BY = "TWL4202I" "Instance '{instance}' is active, term {term}.",
        "This instance replicates its log. `towline status` shows the group.";
    GROUP_ACTIVE = "TWL4203I" "This instance is active, term {term}; it was ready after \
                               {microseconds} us.",
        "It was elected, applied everything that the group committed, and serves clients.";
    GROUP_LOST = "TWL4204W" "This instance is no longer active; the group is in term {term}.",
        "Another instance was elected, or this one did not hear from a majority for \
         heartbeat_timeout_ms. The process re-executes itself as a replica: nothing uncommitted \
         stays in its memory.";
    GROUP_SWITCHED = "TWL4205I" "The switch to instance '{instance}' took {milliseconds} ms.",
        "An administrator requested it, or this instance is shutting down.";
    GROUP_SWITCH_FAILED = "TWL4206W" "The active instance was not switched: {reason}.",
        "An administrator requested it on another instance; that command times out.";
    GROUP_INSTANCE_CAME = "TWL4207I" "Connected with instance '{instance}', version {version}.",
        "Votes and log batches for it use this connection.";
    GROUP_INSTANCE_WENT = "TWL4208W" "The connection from instance '{instance}' ended.",
        "Its process ended, or the network broke. The link reconnects until it succeeds.";
    GROUP_REFUSED_LOG = "TWL4209E" "The log cannot take what the group decided: {reason}.",
        "The process ends. If it ends so again after a start, the disk or the log is damaged: \
         set the log aside with `towline instance replace`; it is then rebuilt from the others.";
    GROUP_CANNOT_APPLY = "TWL4210E" "What the group committed cannot be applied: {reason}.",
        "The process ends. Every instance must understand what the active one writes: compare \
         their versions. If the program of this one is too old, update it: a copy of the log would \
         have the same in it. If the versions are equal, look for the damage that the reason names; \
         when the next start ends so too, give this instance a full copy of the log: `towline \
         instance replace`.";
    GROUP_REEXEC_FAILED = "TWL4211E" "The program cannot re-execute itself: {reason}.",
        "The process ends instead. Its supervisor should start it.";
    GROUP_COPY_GIVEN = "TWL4212I" "Instance '{instance}' got a copy of the log, {bytes} bytes.",
        "Its log was missing, or lagged too far behind.";
    GROUP_COPY_TAKEN = "TWL4213I" "The copy from instance '{instance}' is complete, up to {lsn}.",
        "This instance re-executes itself with it and catches up from there.";
    GROUP_COPY_FAILED = "TWL4214W" "A copy between this instance and '{instance}' failed: \
                                    {reason}.",
        "Retried after a pause that grows from 1 to 30 seconds. The log of the receiving \
         instance is unchanged.";

    GROUP_DISK_FULL = "TWL4215E" "The log of this instance has no space for what the group \
                                  decided.",
        "This instance re-executes itself every two seconds until there is space; the others go \
         on without it. Free disk space, or raise log_bytes_max.";

    GROUP_COPY_COMES = "TWL4216I" "Copying the log from instance '{instance}': {bytes} of {all} \
                                   bytes, {percent} %.",
        "Logged every five seconds. The present log stays until the copy is complete.";
    GROUP_HOLD_ENDED = "TWL4217W" "The log is no longer retained for instance '{instance}': \
                                   {reason}.",
        "The active instance retained log for this replica until it was in sync again. It no \
         longer does: the replica may need another copy.";

    GROUP_LOG_FORGOT = "TWL4220W" "This instance does not vote: it was started with {what}. Its \
                                   log ends with batch {last}; batch {noted} was known to be \
                                   committed.",
        "Batches that it acknowledged may be missing: the log was replaced, restored or put back \
         from an older copy. It follows the active instance and votes when it has caught up. If \
         the group elects no active instance meanwhile, start the others; see \"The group does \
         not elect an active instance\" in the guide on Native HA.";

    GROUP_BATCH_REPAIRED = "TWL4221W" "A damaged batch of the recovery log was repaired: {file}, \
                                       offset {offset} ({lsn}), from instance '{instance}'.",
        "The disk of this instance did not return what was written. Nothing is lost; clients \
         noticed only a short delay. Check the disk: this can happen again.";
    GROUP_BATCH_REFUSED = "TWL4222W" "Data of instance '{instance}' for the damaged log at {lsn} \
                                      was not used: {reason}.",
        "Nothing was written. The next instance is asked. Its log may be damaged too, or too \
         little is intact here to prove that the data is the original.";
    GROUP_BATCH_LACKING = "TWL4223W" "Damage of the recovery log at {lsn} could not be repaired \
                                      from the other instances: {reason}.",
        "Its messages are set aside (TWL2050E). When an instance that has them is connected, \
         reading the message, also from the dead-letter queue, repairs it; otherwise run \
         'towline log repair'. A start waits 10 s for the others, and gives them meanwhile what is \
         intact here: start two damaged instances together. See the guide damaged-log.";
    GROUP_BATCH_GIVEN = "TWL4224I" "Instance '{instance}' got the part of the log at {lsn}, \
                                    which is damaged there.",
        "It repairs its log with it. Check its disk.";
    GROUP_TERM_UNKNOWN = "TWL4230W" "This instance may not know the newest term that it took \
                                     part in, and takes no part until it has heard from \
                                     {instances}.",
        "Its hard state (group-state) is lost, older than its log, or belongs to another log. \
         With the leader of an older term it could acknowledge what the group has not committed; \
         so all other instances must report their terms first, each on a new connection. Start \
         the ones named, or repair the network. If one is lost for good, see \"The group does \
         not elect an active instance\" in the guide on Native HA: towline instance force-vote \
         ends the wait.";
    GROUP_TERM_KNOWN = "TWL4231I" "All other instances reported their terms: this one takes part \
                                   again, in term {term}.",
        "It catches up, and votes when it has.";

    GROUP_ALONE_WITHOUT_VOTE = "TWL4232E" "The only instance of its group was started with {what}. \
        Its log ends with batch {last}; batch {noted} was known to be committed.",
        "No client is served, and no other instance has what may be missing. Use the right data \
         folder, or restore a backup into an empty one; or, to go on without what this log lacks, \
         stop the instance and run `towline instance force-vote`.";
    GROUP_PUT_BACK = "TWL4250W" "The data folder of this instance is an older copy, or another \
                                 process runs on a copy of it: instance '{instance}' recorded \
                                 votes or acknowledgements that this folder does not have. This \
                                 instance neither votes nor acknowledges until it has heard from \
                                 all others and has caught up.",
        "A snapshot of its volume was restored, or a clone of its machine runs. It re-executes \
         itself as if its disk were empty, and receives what it lacks from the active instance. \
         If there is a clone, stop it: each instance needs a data folder of its own, which may be \
         empty.";
    GROUP_LOG_ID_TAKEN = "TWL4252I" "The empty log of this instance is made anew as that of instance \
                                     '{instance}', with the id {id}.",
        "Its log was new, and the group's was made by an earlier version, or in no group. The \
         instance re-executes itself, and receives the log.";
    GROUP_CLONED = "TWL4251W" "A second process with the name of instance '{instance}' is \
                               refused: one is connected.",
        "It may be a clone of the machine, or was started with a copy of the folder. It takes no \
         part, logs TWL4103W, and retries. Stop one of the two. The other one goes on, and \
         catches up first if the stopped one had taken part since the copy was made.";

    FLOATING_HELD = "TWL4301I" "The address {address} is on {interface} of this machine.",
        "This instance is active and has announced the address to its neighbours. The address is \
         removed when the instance is no longer active, or the process does not renew it \
         (lease_s).";
    FLOATING_DROPPED = "TWL4302I" "The address {address} was removed from {interface}.",
        "This instance is ending, or is no longer active.";
    FLOATING_FOUND = "TWL4303I" "The address {address} was found on {interface} and removed.",
        "The previous process was active, and re-executed itself or was killed. Another instance \
         may have the address now.";
    FLOATING_NOT_HELD = "TWL4304E" "Address {address} cannot be added to {interface}: {reason}.",
        "Clients are served, but not at this address, while this instance is active; 'towline \
         switch' to it is refused while the active one can hold the address. The process needs \
         CAP_NET_ADMIN and CAP_NET_RAW: see docs/guides/floating-ip.md. Retried.";
    FLOATING_NOT_DROPPED = "TWL4305E" "Address {address} cannot be removed from {interface}: \
                                       {reason}.",
        "Two machines may have it until its lease ends (lease_s). To remove it now: `towline \
         group address --drop`, or `ip address del`.";
    FLOATING_UNANNOUNCED = "TWL4306W" "Address {address} on {interface} cannot be announced: \
                                       {reason}.",
        "Neighbours learn it when they ask again, which can take a minute. Announcing needs \
         CAP_NET_RAW and an interface that is up.";
    PREFERRED_HANDS_OVER = "TWL4310I" "Switching to instance '{instance}', which is preferred \
                                       and in sync.",
        "See preferred_location in docs/reference/config.md.";
    PREFERRED_HELD_OFF = "TWL4311W" "No switch to instance '{instance}', although it is \
                                     preferred.",
        "The last time, it did not take over, or was active for less than a minute. No switch to \
         it is tried until it has been active for a minute: when the instance is healthy, run \
         `towline switch --to NAME`.";

    GROUP_DISK_OVERDUE = "TWL4320E" "The disk has not answered for {milliseconds} ms: {file}.",
        "Longer than HeartbeatTimeout, not counting time in which the process itself was stopped. \
         An active instance steps down, and re-executes itself when the disk answers (the only one \
         of its group waits); a replica neither campaigns nor votes. Check the disk, and its use.";
    GROUP_DISK_ANSWERS = "TWL4321I" "The disk answers again, after {milliseconds} ms.",
        "This instance takes part in the group again.";
    GROUP_FULL_HANDS_OVER = "TWL4322W" "The log of this instance is full: switching to \
                                        '{instance}', which has space.",
        "Free disk space, or raise log_bytes_max: the group has one instance less to switch to.";
    GROUP_ALL_FULL = "TWL4323E" "The log is full here and on every other instance in sync.",
        "Puts are refused until one of them has space. See the guide on full disks.";
    GROUP_AWAITED = "TWL4324I" "Queue manager '{name}' waits until {count} of {all} instances of \
                                group '{group}' are connected and one is active.",
        "All are needed for a new group, and for an instance with an empty disk or one that may \
         not know its newest term. Clients are not served before. TWL1002I and `ready` follow \
         when this instance or the active one serves them.";

    UNKNOWN_QUEUE = "TWL5010E" "{reason}.",
        "No object has this name, or no model exists for a rule of auto_define. Case matters: \
         clients send names as written, MQSC folds names without quotes to upper case.";
    BAD_NAME = "TWL5011E" "{reason}.", "Names have 1 to 255 bytes and no control characters.";
    BAD_ALIAS = "TWL5012E" "{reason}.",
        "The TARGET of an alias must be a local queue. Correct it with ALTER QALIAS.";
    PUT_INHIBITED = "TWL5013E" "{reason}.",
        "The queue, or the alias to it, has PUT(DISABLED). ALTER it to PUT(ENABLED).";
    GET_INHIBITED = "TWL5014E" "{reason}.",
        "The queue, or the alias to it, has GET(DISABLED). ALTER it to GET(ENABLED).";
    QUEUE_FULL = "TWL5015E" "{reason}.",
        "The queue holds MAXDEPTH messages. Get some, or raise MAXDEPTH.";
    MESSAGE_TOO_LONG = "TWL5016E" "{reason}.",
        "The message is longer than MAXMSGL of the queue or of the queue manager. Raise it, or \
         send less.";
    QUEUE_IN_USE = "TWL5017E" "{reason}.",
        "The queue is NOSHARE, open for exclusive input, or a temporary queue of another \
         connection.";
    UNIT_TOO_MANY_MESSAGES = "TWL5018E" "{reason}.",
        "A unit of work exceeded MAXUMSGS. Commit more often, or raise it.";
    UNIT_TOO_LARGE = "TWL5019E" "{reason}.",
        "A unit of work exceeded unit_bytes_max. Commit more often, or raise it.";
    UNIT_TOO_OLD = "TWL5020E" "{reason}.",
        "A unit of work was open for longer than unit_age_max_s. Commit earlier, or raise it.";
    UNKNOWN_UNIT = "TWL5021E" "{reason}.",
        "The unit of work has ended, or belongs to another connection.";
    TOO_MANY_UNITS = "TWL5022E" "{reason}.",
        "One connection opened too many units of work. Commit or roll back some.";
    ALREADY_EXISTS = "TWL5023E" "{reason}.",
        "DEFINE without REPLACE found the object. Use ALTER, or DEFINE with REPLACE.";
    WRONG_TYPE = "TWL5024E" "{reason}.",
        "The object exists, but has another type. DISPLAY QUEUE shows it.";
    OBJECT_OPEN = "TWL5025E" "{reason}.",
        "DISPLAY QSTATUS TYPE(HANDLE) shows the connections that have it open; STOP CONN closes \
         one.";
    NOT_EMPTY = "TWL5026E" "{reason}.", "DELETE does not remove messages without PURGE.";
    UNCOMMITTED = "TWL5027E" "{reason}.", "DISPLAY QSTATUS shows the number in UNCOM.";
    BAD_ATTRIBUTE = "TWL5028E" "{reason}.", "The value is outside its range.";
    MEMORY_FULL = "TWL5029E" "{reason}.",
        "Non-persistent messages and open units of work are in memory, up to memory_bytes_max.";
    LOG_FULL_REFUSED = "TWL5030E" "{reason}.", "See TWL2005E and TWL2007E.";
    ENDING_REFUSED = "TWL5031E" "{reason}.",
        "The queue manager is ending. Connect again when it runs.";
    NOT_AUTHORIZED = "TWL5032E" "{reason}.",
        "The user may not do this. Administrators are named in [users] of the configuration.";
    OBJECT_DELETED = "TWL5033E" "{reason}.", "The object was deleted while it was open.";
    NOT_LIVE = "TWL5034E" "{reason}.",
        "The log of this queue manager names another group as the live one: an instance of that \
         group serves its queues. Connect there.";
    FENCED_REFUSED = "TWL5036E" "{reason}.", "'towline status --groups' says what to do.";
    HISTORY_REFUSED = "TWL5035E" "{reason}.",
        "A change of roles between two regions was asked for and cannot be recorded in the log. \
         Nothing was changed.";
    UNIT_DOOMED = "TWL5040E" "{reason}.",
        "A put or a get in the unit was refused; a commit would make only a part of it take \
         effect. Correct the cause and repeat the whole unit.";
    UNIT_HELD_LOG = "TWL5041E" "{reason}.", "See TWL2030W.";
    UNITS_TOO_MANY_PUTS = "TWL5042E" "{reason}.",
        "Open units of work of one connection have too many messages. Commit or roll back some.";
    MESSAGE_UNREADABLE = "TWL5050E" "{reason}.",
        "The recovery log does not return what was written for this message. The link is closed, \
         so that the client learns that a message is missing. The guide damaged-log says \
         how to restore the message.";

    QUEUE_CREATED = "TWL8006I" "Queue '{name}' created.", "DEFINE was carried out and logged.";
    QUEUE_DELETED = "TWL8007I" "Queue '{name}' deleted.", "DELETE was carried out and logged.";
    QUEUE_CHANGED = "TWL8008I" "Queue '{name}' changed.", "ALTER was carried out and logged.";
    QUEUE_MANAGER_CHANGED = "TWL8009I" "Queue manager '{name}' changed.",
        "ALTER QMGR was carried out and logged.";
    QUEUE_CLEARED = "TWL8010I" "Queue '{name}' cleared.",
        "All messages of the queue were removed.";
    CONNECTION_STOPPED = "TWL8011I" "Connection {number} is closing.",
        "STOP CONN was carried out. Open units of work of the connection are rolled back; messages \
         that it did not settle go back to their queues. Its client may connect again.";
    MESSAGES_MOVED = "TWL8012I" "{count} messages moved from '{queue}' to '{queue}', {left} are \
                                 left.",
        "MOVE QLOCAL was carried out and logged. Messages are left when there are more than one \
         command may move, or when the other queue is full: repeat it. Messages that a consumer \
         has, or that an open unit of work got, stay and are not counted.";
    CONNECTION_UNKNOWN = "TWL8146E" "Connection {number} does not exist.",
        "STOP CONN was given a number that no open connection has. DISPLAY CONN(*) shows those \
         that do.";
    NOT_FOUND = "TWL8147E" "Object '{name}' does not exist.",
        "DISPLAY was given a full name that no such object has. Names are case-sensitive: put \
         one in lower case in quotes.";
    NOTHING_MATCHES = "TWL8148I" "No object matches.",
        "DISPLAY was given a generic name or WHERE, and no object fits; or TYPE(HANDLE), and the \
         queue is not open.";
    SHOW_CONNECTION = "TWL8276I" "Display connection details.", "DISPLAY CONN.";
    SHOW_HANDLE = "TWL8277I" "Display handle details.",
        "DISPLAY QSTATUS or CONN with TYPE(HANDLE): a queue that a connection has open.";
    SYNTAX_ERROR = "TWL8405E" "Line {line}, column {column}: {reason}",
        "The command was not understood and not carried out. See docs/reference/mqsc.md.";
    SHOW_QUEUE_MANAGER = "TWL8408I" "Display queue manager details.", "DISPLAY QMGR.";
    SHOW_QUEUE = "TWL8409I" "Display queue details.", "DISPLAY QUEUE, QLOCAL, QALIAS, QMODEL.";
    SUMMARY = "TWL8417I" "{read} commands read, {syntax} with a syntax error, {failed} failed.",
        "The end of a script.";
    TOO_MANY_ROWS = "TWL8418W" "Only the first {count} are shown.",
        "More objects match. Name fewer of them, or add WHERE.";
    SCRIPT_TOO_LONG = "TWL8419E" "The script is longer than {bytes} bytes.",
        "No command was carried out. Send it in parts.";
    SHOW_QUEUE_STATUS = "TWL8450I" "Display queue status details.", "DISPLAY QSTATUS.";
}
