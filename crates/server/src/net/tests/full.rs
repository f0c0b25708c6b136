//! Connections that are full because of what all of them hold together.

use towline_types::limits;

use super::*;

const QUEUE: &str = "DEV.QUEUE.1";
/// Together they take more than the least part of all connections.
const CONSUMERS: u64 = limits::CONNECTION_BYTES_MIN / limits::CONSUMER_LINK_BYTES;

#[test]
fn a_connection_goes_on_by_itself_when_others_have_given_memory_back() {
    run(false, async |bench| {
        bench.door.define_defaults();
        let (mut client, served) = bench.connect(ClientLogin::Anonymous, WIDE);
        let links = client.receivers(QUEUE, CONSUMERS).await;
        let accounts = bench.door.connections();
        let parts = limits::CONNECTIONS_BYTES_MAX / limits::CONNECTION_BYTES_MIN;
        let mut others: Vec<_> = (0..parts).map(|_| accounts.join()).collect();
        others[0].holds(limits::CONNECTIONS_BYTES_MAX, limits::CONNECTION_BYTES_DEFAULT);
        client.machine.set_credit(links[0], 10);
        client.flush().await.unwrap();
        let (mut producer, _) = bench.connect(ClientLogin::Anonymous, WIDE);
        let sender = producer.sender(QUEUE).await;
        producer.send(sender, 0, false, 100);
        producer.accepted(1).await;
        let mut got = Box::pin(client.event());
        assert!(is_pending(&mut got).await, "it is full");
        others[0].holds(0, limits::CONNECTION_BYTES_DEFAULT);
        assert!(!is_pending(&mut got).await, "nothing woke it");
        drop(got);
        client.machine.close(None);
        while client.event().await.is_some() {}
        drop(client);
        assert_eq!(served.await.unwrap(), End::Orderly);
    });
}
