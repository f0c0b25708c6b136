//! The entries of the catalogue about two regions. Only a table: no logic.

use super::Entry;

entries! {
    REGION_ENTRIES;
    REGION_LINK_UP = "TWL4401I" "Link to instance '{instance}' of group '{group}' at {address} is \
                                 up; it runs version {version}.",
        "The other region is connected.";
    REGION_LINK_DOWN = "TWL4402W" "Link to instance '{instance}' of group '{group}' is down: \
                                   {reason}.",
        "The instance ended, the network between the regions is cut, or one side ended the \
         connection for the reason given. The side that ships its log connects again.";
    REGION_UNREACHABLE = "TWL4403W" "Group '{group}' cannot be reached: {reasons}. Tried again \
                                     every {seconds} s ({timer}).",
        "The addresses of [group.recovery] were tried in order, each with its reason. Logged when \
         each retry timer begins, or at each try (retry_reporting). An instance that answers and \
         is not the one that receives the log refuses, and the next one is tried. If an instance \
         runs, compare addresses, names of the groups and certificates on both sides.";
    REGION_LINK_REFUSED = "TWL4404W" "A connection from {address} for the link between regions was \
                                      refused: {reason}.",
        "Only instances of the other region's group may connect, each with a valid certificate of \
         its own name, and with the same name of the queue manager. Each group must have the name \
         of the other one in [group.recovery]. The reason has both values; correct the wrong one. \
         Logged once a minute for each address and reason.";
    REGION_PARTITIONED = "TWL4405E" "The log of this group and that of group '{group}' are not one: \
                                     {reason}. Nothing is sent.",
        "Neither log is changed. A group that was live, and has nothing of its own behind the \
         position at which they part, follows the other one by itself. One with messages of its own \
         lists and gives them up with 'towline region divergence' and 'towline region rejoin'; a \
         group that only follows begins anew with empty folders. 'towline region check' says which. \
         If both are live, decide first which one stays so.";
    REGION_RPO_MISSED = "TWL4406W" "More is at risk than the objective allows: group '{group}' \
                                    lacks {bytes} bytes, the oldest committed {seconds} s ago.",
        "If this group were lost now, so much would be lost (rpo_bytes, rpo_s of [group.recovery]). \
         The link is down or too slow for the load, or the other group is: 'towline status --groups' \
         says which. TWL4407I follows when the objective is met again.";
    REGION_RPO_MET = "TWL4407I" "The recovery point objective is met again: group '{group}' lacks \
                                 {bytes} bytes, the oldest committed {seconds} s ago.",
        "It follows TWL4406W.";
    REGION_LOG_LET_GO = "TWL4408W" "Log that group '{group}' lacks is kept no longer ({bytes} bytes): \
                                    {reason}.",
        "The other group was away, or behind, for too long. When the log that it lacks is reclaimed \
         it needs a copy of this one. More is kept with a greater log_bytes_behind_max of \
         [group.recovery], if the log has the space.";
    REGION_RPO_UNKNOWN = "TWL4410W" "What is at risk has not been known for {seconds} s: group \
                                     '{group}' has not reported since this instance became active, \
                                     and {bytes} bytes were committed since.",
        "So long it may lack what this group has, and more may be at risk than the objective allows \
         (rpo_bytes, rpo_s of [group.recovery]): it counts as missed. See the link in 'towline status \
         --groups'. TWL4407I follows when the objective is known to be met.";
    REGION_SYNC_IN_STEP = "TWL4421I" "Group '{group}' has all that was acknowledged: replies to \
                                      clients wait for its disks.",
        "sync_replication: a fail-over loses nothing that was acknowledged. It follows the start of \
         an active instance, and TWL4422W, TWL4423W or TWL4424W.";
    REGION_SYNC_WITHHOLDS = "TWL4422W" "Nothing persistent has been acknowledged for {seconds} s: \
                                        group '{group}' is away or behind, and replies wait for it.",
        "sync_replication with sync_consistency = \"strict\". Clients stay connected, and get and put \
         non-persistent messages as ever; puts and commits of persistent ones are stored here and \
         not answered. 'towline status --groups' says what is the matter with the other group. If it \
         does not come back, 'towline region alone' has this group serve without it, and a fail-over \
         may lose from then on what was acknowledged.";
    REGION_SYNC_ALONE = "TWL4423W" "Group '{group}' has been away or behind for {seconds} s: replies \
                                    wait for it no longer.",
        "sync_replication with sync_consistency = \"eventual\": what is acknowledged from here on is \
         lost by a fail-over, until TWL4421I follows. Replies wait again when the other group is \
         connected and has caught up.";
    REGION_SYNC_ORDERED = "TWL4424W" "Replies do not wait for group '{group}' until it has caught \
                                      up: ordered by {by}.",
        "'towline region alone': what is acknowledged from here on is lost by a fail-over, until \
         TWL4421I follows. The order ends with this active instance, too: the next one waits.";
    GROUP_FOLLOWS_REGION = "TWL4409I" "Group '{group}' of '{name}' is in recovery: it follows group \
                                       '{live}', and serves no client.",
        "The live group's active instance connects to an instance of this group and sends its log. \
         'towline status --groups' shows how far it is.";
    REGION_LOG_FULL = "TWL4413E" "The log of this instance has no space for what the live group \
                                  sends: {bytes} bytes are in use. Nothing more is taken until it \
                                  has.",
        "This group falls behind. Raise log_bytes_max here as far as the live group may fill its own \
         log, and restart this instance ('towline rolling-restart --this-one'); or enlarge the file \
         system; or get messages, or clear queues, at the live group: when the log there has become \
         small enough, this group gets a copy of it by itself. TWL4411I follows.";
    REGION_LOG_HAS_ROOM = "TWL4411I" "The log of this instance has space again for what the live \
                                      group sends: {bytes} bytes are in use.",
        "It follows TWL4413E: this group catches up.";
    REGION_FULL_GETS_COPY = "TWL4412I" "The log of group '{group}' is full, with a limit of {max} \
                                        bytes: it gets a copy of the log here, which takes {bytes}.",
        "Messages that fill the log of the recovery group are gone here: with a copy it has space \
         again, without their removals being sent first. TWL4441I follows.";
    REBASE_GIVES = "TWL4441I" "A copy of the log goes to instance '{instance}' of group '{group}': \
                               {bytes} bytes, of which it has {has}.",
        "The log that the other group lacks is not there any more, so it gets an image and the log \
         behind it. This instance goes on serving. TWL4443I says how far it is, TWL4444I that it \
         has arrived.";
    REBASE_COMES = "TWL4442I" "A copy of the log of group '{group}' comes: {bytes} bytes, of which \
                               {has} are here.",
        "This group lacks log that the live one does not have any more. Its own log stays as it is \
         until the copy is whole, and can be promoted. 'towline status --groups' shows both.";
    REBASE_PROGRESS = "TWL4443I" "The copy between this group and '{group}': {done} of {all} bytes \
                                  ({percent} %), {rate} bytes a second, about {rest} s to go.",
        "Counted is what is on the disk of the one that gets it.";
    REBASE_GIVEN = "TWL4444I" "Instance '{instance}' of group '{group}' has the copy of the log: \
                               {bytes} bytes.",
        "It starts with it, and is then sent what is new. The log behind the copy is kept for it \
         until then.";
    REBASE_TAKEN = "TWL4445I" "The copy of the log of group '{group}' is whole up to {position} \
                               (batch {index}): this instance restarts with it.",
        "The old log is removed when the new one was opened. In a group of three the other \
         instances get it from this one; until one of them has it, the recovery point is the old \
         one.";
    REBASE_INTERRUPTED = "TWL4446W" "The copy between this group and '{group}' stopped: {reason}.",
        "The live group tries again, at least every 30 s. If it still has the image that the copy \
         began with, it goes on where it was. The recovery group keeps its log meanwhile.";
    REBASE_GIVEN_UP = "TWL4447W" "The log that is kept for a copy to group '{group}' is let go: \
                                  {reason}.",
        "The next copy begins anew, with a newer image. If the log is too full to keep what a copy \
         needs, give it more space (log_bytes_max), or the link more speed.";
    REBASE_NO_ROOM = "TWL4448E" "There is no space for a copy of the log of group '{group}' beside \
                                 the log that is here: {needed} bytes are needed, {free} are free.",
        "Nothing was written; the log that is here stays, and can be promoted, but it does not get \
         newer. Free that much on the disk of the data folder: the live group tries again.";
    REGION_LIVE_NOW = "TWL4430I" "This group is the live one from here on: history {history} has \
                                 begun.",
        "A change of roles, planned or not, has reached this instance. An instance of this group is \
         elected and serves clients.";
    REGION_FOLLOWS_NOW = "TWL4431I" "This group is a recovery group from here on: history \
                                    {history} of the other group has begun.",
        "A change of roles has reached this instance. Its group serves no client, and follows the \
         other one.";
    REGION_MARKED = "TWL4432I" "This instance takes nothing more of the live group, and takes part \
                               in a promotion to history {history}: {cause}.",
        "An operator ordered a fail-over. When a majority of this group is marked so, one is \
         elected, begins the history and serves clients: TWL4430I follows.";
    REGION_NOT_BEGUN = "TWL4433E" "History {history} cannot begin yet: {reason}. No client is \
                                  served.",
        "This instance was elected in a fail-over, and its log does not take the record with which \
         the history begins. It is tried again. With a full log, give the disk more space.";
    REGION_SWITCH_BEGUN = "TWL4434I" "A switch to group '{group}' has begun: {cause}. Clients are \
                                     let go.",
        "From here on nothing is decided by this group. TWL4435I or TWL4436W follows.";
    REGION_SWITCHED = "TWL4435I" "Group '{group}' has all of the log, and is live in history \
                                 {history}. Clients were let go {ms} ms before it had all.",
        "This instance re-executes itself as one of a recovery group. Clients are served when an \
         instance of the other group says that it is ready: that is later.";
    REGION_SWITCH_BACK = "TWL4436W" "The switch to group '{group}' was taken back: {reason}. This \
                                    group serves clients as before.",
        "Nothing was changed. 'towline region switch --dry-run' lists what stands in the way.";
    REGION_SWITCH_IN_DOUBT = "TWL4437W" "The switch to group '{group}' is in doubt: it has not \
                                        acknowledged the last batch of this log: {reason}.",
        "That batch says that the other group is live. This instance serves no client any more. If \
         the batch is committed in this group, it is given to the other one as soon as the link \
         stands, and then that one serves; if it is not, the next active instance of this group may \
         not have it, and serves. To have clients served before the link stands, see that this \
         group is in recovery ('towline status --groups'), and order 'towline region failover' in \
         one of the groups, not in both. In the other one nothing is lost, and this group gives up \
         that batch and follows by itself when the link stands. In this one only if the other \
         region is lost: it may have the batch, and serve.";
    REGION_RETURN_ORDERED = "TWL4451I" "This instance is to give up its log behind {fork}, and to \
                                       follow the other group: ordered by {by}. It restarts for \
                                       that.",
        "Its group was live when another one was promoted, or had handed over to one that never \
         had the last batch, and returns as a recovery group. The start looks whether that can be \
         done: TWL4452I or TWL4453W follows.";
    REGION_RETURNED = "TWL4452I" "The log of this instance ends at {position} (batch {index}) now: \
                                 it is one of a recovery group.",
        "What was behind that is given up. Only what is new since then is sent by the live group.";
    REGION_RETURN_REFUSED = "TWL4453W" "The order to return was not carried out: {reason}. Nothing \
                                       was changed.",
        "This instance goes on as before. If its log went on, list and export its tail again \
         ('towline region divergence --export'), and order the return again. If a majority of its \
         group has returned, it follows without that: see TWL4451I. If it does not hold \
         the fork any more, its folder must be emptied, so that it gets a copy.";
    REGION_RETURNS_ALONE = "TWL4454I" "Behind the fork at {fork} this log has no change that group \
                                      '{group}' lacks: this group follows it without an order.",
        "The other group was promoted while this one was away, or before it had the last batch of \
         a switch (TWL4437W), and this one has put, removed and defined nothing since.";
    REGION_SUPERSEDED = "TWL4471E" "Group '{group}' took over from this one: history {history}, \
                                    from {fork} on. This group serves no client any more.",
        "The other group was promoted, and this one hears of it now. Clients are let go, and stay \
         away also when this instance starts again without the other region. What this log has \
         behind the fork is kept: list and export it with 'towline region divergence', then have \
         this group follow with 'towline region rejoin'. If it is to serve again, order 'towline \
         region switch' at the other group after that; or, if the other region is lost, 'towline \
         region failover' here.";
    REGION_LOG_LOST = "TWL4476E" "The log of this group is new, and group '{group}' has the one that \
                                  this group should have (history {history}). This group serves no \
                                  client.",
        "The data folder of this group is empty or was: its disk was lost, is not mounted, or the \
         folder was emptied, and the file says role = \"live\". What the other group has is all that \
         there is: do not empty it. If the disk is there, stop this instance, mount it, and start \
         again. If it is lost and the other group is in recovery, order 'towline region failover' \
         there. If the other group is live, stop the instances here, empty their folders, and start \
         them with role = \"recovery\": they get a copy.";
    REGION_FENCED = "TWL4472W" "This group is fenced, and serves no client: ordered by {by} \
                                ({reason}).",
        "An administrator ordered 'towline region fence'. It stays so when this instance starts \
         again, until 'towline region unfence'. What was committed is still sent to the other \
         group, so that a fail-over there loses nothing.";
    REGION_FENCE_OVER = "TWL4473I" "This group is fenced no more.",
        "It was taken back with 'towline region unfence', or the next history has begun in this \
         log.";
    GROUP_STARTS_FENCED = "TWL4475W" "Group '{group}' of '{name}' serves no client: {reason}.",
        "It was fenced, or superseded, before this instance started: see TWL4471E and TWL4472W. \
         'towline status --groups' says what to do.";
    REGION_FENCE_NOT_KEPT = "TWL4474E" "That this group is fenced cannot be written down: {reason}.",
        "No client is served by this process. The next one would not know of it before it has heard \
         it again: free space in the data folder, and order it again.";
    REGION_DRILL_RETURNS = "TWL4465I" "This group became live by a drill, and switches back to \
                                      group '{group}' in {seconds} s: ordered by {by}.",
        "So it stands in the log, since the drill began. Any change of roles before that \
         ends the drill. TWL4434I follows.";
    REGION_DRILL_STAYS = "TWL4466W" "The drill does not go back to group '{group}': {reason}. This \
                                     group stays live.",
        "It was tried for as long as a drill may take. 'towline region switch --dry-run' lists what \
         stands in the way; order 'towline region switch' here when nothing does.";
    METRICS_NOT_SERVED = "TWL4491W" "The metrics are not served at {address} yet: {reason}.",
        "Another program may have that address (metrics.address). It is tried again each second; \
         clients of the queue manager notice nothing.";
    REGION_REHEARSAL_BEGUN = "TWL4481I" "A rehearsal with the log of this recovery instance up to \
                                        {position} has begun: ordered by {by}.",
        "A queue manager of its own, for one check, reads the log and the pages where they are. \
         What it needs of them is kept meanwhile; the log of the live group is received as ever.";
    REGION_REHEARSAL_ENDED = "TWL4482I" "The rehearsal has ended: {reason}. Its log is let go.",
        "Nothing of it is left in the data folder. What still runs of it, if the reason says so, \
         has a folder of its own: end it. When this instance needs its log, or its group is \
         promoted, it ends the rehearsal by itself.";
}
