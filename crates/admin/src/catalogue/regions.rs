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
}
