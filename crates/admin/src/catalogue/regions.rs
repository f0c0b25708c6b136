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
        "Neither log is changed. Find out which group has what is to be kept. A group that only \
         follows begins anew with empty folders; a log with messages of its own must be looked \
         through before that.";
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
    GROUP_FOLLOWS_REGION = "TWL4409I" "Group '{group}' of '{name}' is in recovery: it follows group \
                                       '{live}', and serves no client.",
        "The live group's active instance connects to an instance of this group and sends its log. \
         'towline status --groups' shows how far it is.";
}
