//! Long messages, which are checked beside the connections of their thread.

use towline_types::limits;

use super::super::connection::checks::{CHECKS, CHECKS_MAX};
use super::*;

const QUEUE: &str = "DEV.QUEUE.1";
const LONG: usize = 2 * limits::CHECKED_AT_ONCE_BYTES_MAX;
/// More than any message of these tests.
const PIPE: usize = 4 * LONG;

fn depth(bench: &Bench) -> u64 {
    let status = Default::default();
    let queues = bench.door.look(|instance| instance.status(bench.door.clock().now(), status));
    queues.queues.iter().find(|queue| queue.name == QUEUE).unwrap().depth
}

#[test]
fn others_go_on_while_a_long_message_is_checked_and_nothing_overtakes_it() {
    run(false, async |bench| {
        bench.door.define_defaults();
        let (mut client, _) = bench.connect(ClientLogin::Anonymous, PIPE);
        let link = client.sender(QUEUE).await;
        let (mut other, _) = bench.connect(ClientLogin::Anonymous, WIDE);
        let others = other.sender("DEV.QUEUE.2").await;
        // All threads for that are busy until we say so.
        let busy = CHECKS.acquire_many(CHECKS_MAX).await.unwrap();
        client.send(link, 0, false, LONG);
        client.send(link, 1, false, 10);
        {
            let mut accepted = Box::pin(client.accepted(1));
            assert!(is_pending(&mut accepted).await, "it was checked at once");
        }
        assert_eq!(depth(&bench), 0, "what came behind it has overtaken it");
        other.send(others, 0, false, 10);
        other.accepted(1).await;
        drop(busy);
        client.accepted(2).await;
        assert_eq!(depth(&bench), 2);
        // A client that does not wait for answers loses nothing by going.
        let busy = CHECKS.acquire_many(CHECKS_MAX).await.unwrap();
        client.send(link, 2, false, LONG);
        client.send(link, 3, false, 10);
        client.flush().await.unwrap();
        {
            let mut over = Box::pin(client.close());
            assert!(is_pending(&mut over).await, "it is over, and what it had sent is not put");
            drop(busy);
            over.await;
        }
        assert_eq!(depth(&bench), 4);
    });
}
