//! This instance leads, and all that the group committed is applied: it ends the restart and serves
//! clients. From here on it is what a single instance is, but for what "durable" means.

use std::sync::{Arc, OnceLock};

use towline_node::Restart;
use towline_replica::OpenReplica;
use towline_replica::active::ElectedInstance;
use towline_types::BatchPlace;

use super::addresses::ClientAddresses;
use crate::net::{AcceptedClient, Away, Here, IoThreads};
use crate::reload::Reload;
use tokio::runtime::Handle;
use towline_config::Config;
use towline_engine::{GroupView, RunningInstance};
use towline_os::task::handle_of;
use towline_process::Clock;
use towline_replication::driver::Driver;

/// The threads that serve clients, once there are any, and the one that turns them away.
pub(crate) struct Serving {
    threads: OnceLock<IoThreads>,
    away: IoThreads,
    driver: Arc<Driver>,
    addresses: Arc<ClientAddresses>,
}

impl Serving {
    /// Of an instance that is not active yet.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub(crate) fn new(
        driver: &Arc<Driver>,
        addresses: &Arc<ClientAddresses>,
        clock: Clock,
    ) -> std::io::Result<Serving> {
        let asked = Arc::clone(addresses);
        let why = Box::new(move |listener| asked.turned_away(listener));
        let away = IoThreads::turning_away(Away { clock, why })?;
        let (driver, addresses) = (Arc::clone(driver), Arc::clone(addresses));
        Ok(Serving { threads: OnceLock::new(), away, driver, addresses })
    }
}

impl Here for Serving {
    async fn serve(&self, client: AcceptedClient) {
        // `Where::Here` is said when the threads are there.
        if let Some(threads) = self.threads.get() {
            threads.serve(client).await;
        }
    }

    async fn turn_away(&self, client: AcceptedClient) {
        // It ends with the process.
        self.away.serve(client).await;
    }

    fn serves_nobody(&self) -> bool {
        self.addresses.serves_nobody()
    }

    fn is_hopeful(&self) -> bool {
        self.driver.group().leader.is_some()
    }
}

/// Makes this instance active.
///
/// # Errors
/// When the system has no thread for it.
pub(crate) fn open_door(
    (name, config): (&str, &Config),
    opened: &OpenReplica,
    back: (Restart, BatchPlace),
    (serving, reload): (&Serving, &Arc<Reload>),
    about: (Vec<String>, Arc<dyn GroupView>),
    runtime: &Handle,
) -> std::io::Result<RunningInstance> {
    let elected = ElectedInstance::of(config, opened, back, about);
    let threads = IoThreads::start(crate::endpoints::io_threads(config), elected.door())?;
    assert!(serving.threads.set(threads).is_ok(), "an instance becomes active once");
    elected.serve(config, reload.jobs(name), &handle_of(runtime))
}
