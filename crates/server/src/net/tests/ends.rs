//! How connections end when many of them do.

use super::*;

use towline_types::limits;

#[test]
fn a_client_that_is_gone_has_left_the_instance_before_its_socket_has_its_turn() {
    run(false, async |mut bench| {
        // Nothing gives turns of these.
        bench.paces = Rc::default();
        for _ in 0..limits::ENDS_PER_ROUND {
            bench.paces.ends.turn().await;
        }
        let (mut client, mut served) = bench.connect(ClientLogin::Anonymous, WIDE);
        client.opened().await;
        let connections = || bench.door.status().connections;
        assert_eq!(connections(), 1);
        drop(client);
        assert!(is_pending(&mut served).await, "many ends are one stall");
        assert_eq!(connections(), 0, "what it had waits for a socket to be closed");
        assert_eq!(bench.admission.connections(), 1, "it has a descriptor yet");
        let paces = Rc::clone(&bench.paces);
        tokio::task::spawn_local(async move { paces.run().await });
        assert_eq!(served.await.unwrap(), End::Lost);
        assert_eq!(bench.admission.connections(), 0);
    });
}

#[test]
fn an_administrator_of_this_machine_leaves_its_slot_whatever_else_waits() {
    run(false, async |mut bench| {
        bench.paces = Rc::default();
        for _ in 0..limits::ENDS_PER_ROUND {
            bench.paces.ends.turn().await;
        }
        let (ours, theirs) = duplex(WIDE);
        let mut client = Client::new(theirs, ClientLogin::Anonymous);
        let mut served = bench.serve_from(ours, None);
        client.opened().await;
        drop(client);
        assert!(!is_pending(&mut served).await, "there are only 64 slots");
        assert_eq!(bench.admission.connections(), 0);
    });
}
