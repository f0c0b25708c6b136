//! What goes on beside the traffic between two regions, as time passes.
//!
//! Not here: the traffic (`region`), and what each of these tasks does.

use std::sync::Arc;

use towline_config::Config;
use towline_os::task::JoinSet;
use towline_replication::region_part::RegionPart;

use super::addresses::ClientAddresses;
use super::status::View;
use super::{metrics_page, region_intervals, region_reports};
use crate::run_args::RunArgs;

/// Says to the other region, and to the others of this group, what concerns both; measures and
/// serves figures. Until the tasks end.
pub(super) fn start(
    tasks: &mut JoinSet<()>,
    (args, config): (&RunArgs, &Config),
    view: &Arc<View>,
    addresses: &Arc<ClientAddresses>,
    region: &Arc<RegionPart>,
) {
    view.set_region(Arc::clone(region));
    addresses.set_region(Arc::clone(region));
    tasks.spawn(region_reports::say(Arc::clone(region), view.clone(), Arc::clone(addresses)));
    tasks.spawn(region_intervals::watch(Arc::clone(region), Arc::clone(&view.sent)));
    if let Some(address) = config.metrics.address {
        tasks.spawn(metrics_page::serve(
            (address, config.metrics.allow_plaintext),
            args.name.clone(),
            view.clone(),
        ));
    }
}
