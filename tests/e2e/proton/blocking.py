"""Scenarios with Proton's blocking interface: the shape of most scripts that people write."""

import time
import uuid

from proton import Message, Timeout
from proton.reactor import Copy, Selector
from proton.utils import LinkDetached, SendException

from towline_proton import NOTHING, PATIENCE, check, connect, equal, fails, main, scenario


def bodies(receiver, count):
    """Receives and accepts so many messages, and gives back their bodies."""
    seen = []
    for _ in range(count):
        seen.append(receiver.receive(timeout=PATIENCE).body)
        if receiver.fetcher.unsettled:
            receiver.accept()
    return seen


def put(connection, queue, *texts, **properties):
    """Sends durable messages and waits for each to be accepted."""
    sender = connection.create_sender(queue, name=f"put-{uuid.uuid4()}")
    for text in texts:
        sender.send(Message(body=text, durable=True, properties=properties or None))
    sender.close()


def give_back_failed(receiver):
    """modified with delivery-failed, which the blocking interface does not set by itself."""
    receiver.fetcher.unsettled[0].local.failed = True
    receiver.release(delivered=True)


@scenario
def reject_one(url, queue):
    """Rejects the oldest message."""
    connection = connect(url)
    receiver = connection.create_receiver(queue)
    receiver.receive(timeout=PATIENCE)
    receiver.reject()
    connection.close()


@scenario
def back_out(url, queue, times):
    """Gives the oldest message back so often, each time as a failed delivery."""
    connection = connect(url)
    receiver = connection.create_receiver(queue)
    for _ in range(int(times)):
        receiver.receive(timeout=PATIENCE)
        give_back_failed(receiver)
    connection.close()


@scenario
def same_link_name(url):
    """Sender and receiver of one address have the same link name: names are per direction."""
    connection = connect(url)
    sender = connection.create_sender("SAME", name="same")
    receiver = connection.create_receiver("SAME", name="same")
    sender.send(Message(body="through", durable=True))
    equal(["through"], bodies(receiver, 1), "body")
    connection.close()


@scenario
def plain_example(url):
    """The example program of the Proton guide, unmodified in its calls."""
    connection = connect(url)
    receiver = connection.create_receiver("EXAMPLES")
    sender = connection.create_sender("EXAMPLES")
    sender.send(Message(body="Hello World!"))
    equal("Hello World!", receiver.receive(timeout=PATIENCE).body, "body")
    receiver.accept()
    connection.close()


@scenario
def prefixed_addresses(url):
    """`queue://NAME` and `NAME` are the same queue."""
    connection = connect(url)
    put(connection, "queue://PREFIXED", "one")
    equal(["one"], bodies(connection.create_receiver("PREFIXED"), 1), "body")
    connection.close()


@scenario
def released(url):
    """A released message comes again, and nothing is counted."""
    connection = connect(url)
    put(connection, "RELEASED", "a")
    receiver = connection.create_receiver("RELEASED")
    equal("a", receiver.receive(timeout=PATIENCE).body, "first")
    receiver.release(delivered=False)
    again = receiver.receive(timeout=PATIENCE)
    equal("a", again.body, "the same again")
    equal(0, again.delivery_count, "delivery count")
    receiver.accept()
    connection.close()


@scenario
def modified_counts(url):
    """modified gives the message back, and counts only with delivery-failed."""
    connection = connect(url)
    put(connection, "MODIFIED", "a")
    receiver = connection.create_receiver("MODIFIED")
    for count in range(3):
        message = receiver.receive(timeout=PATIENCE)
        equal(count, message.delivery_count, "delivery count")
        give_back_failed(receiver)
    equal(3, receiver.receive(timeout=PATIENCE).delivery_count, "delivery count")
    receiver.release(delivered=True)
    equal(3, receiver.receive(timeout=PATIENCE).delivery_count, "without delivery-failed")
    receiver.accept()
    connection.close()


@scenario
def rejected(url, dead_letter_queue):
    """A rejected message goes to the dead-letter queue at once, and says where it was."""
    connection = connect(url)
    put(connection, "REJECTED", "poison", "good")
    receiver = connection.create_receiver("REJECTED")
    equal("poison", receiver.receive(timeout=PATIENCE).body, "first")
    receiver.reject()
    equal("good", receiver.receive(timeout=PATIENCE).body, "then")
    receiver.accept()
    dead = connection.create_receiver(dead_letter_queue).receive(timeout=PATIENCE)
    equal("poison", dead.body, "dead letter")
    words = f"{dead.properties} {dead.annotations}"
    check("REJECTED" in words, f"the dead letter does not tell its queue: {words}")
    connection.close()


@scenario
def backed_out(url, queue, backout_queue, threshold):
    """At BOTHRESH the server moves the message to BOQNAME."""
    connection = connect(url)
    put(connection, queue, "poison")
    receiver = connection.create_receiver(queue)
    for _ in range(int(threshold)):
        equal("poison", receiver.receive(timeout=PATIENCE).body, "below the threshold")
        give_back_failed(receiver)
    fails(Timeout, lambda: receiver.receive(timeout=NOTHING))
    moved = connection.create_receiver(backout_queue).receive(timeout=PATIENCE)
    equal("poison", moved.body, "moved")
    connection.close()


@scenario
def browse(url):
    """distribution-mode copy shows everything and takes nothing."""
    connection = connect(url)
    put(connection, "COPY", "a", "b", "c")
    for _ in range(2):
        browser = connection.create_receiver("COPY", options=Copy(), name=f"b-{uuid.uuid4()}")
        equal(["a", "b", "c"], bodies(browser, 3), "browsed")
        fails(Timeout, lambda: browser.receive(timeout=NOTHING))
        put(connection, "COPY", "later")
        equal(["later"], bodies(browser, 1), "a later message reaches the browser")
        browser.close()
        got = connection.create_receiver("COPY", options=Selector("later IS NULL"), name="x")
        equal(["a", "b", "c", "later"], bodies(got, 4), "still there")
        got.close()
        put(connection, "COPY", "a", "b", "c")
    connection.close()


@scenario
def selector(url):
    """The selector filter, by property and by correlation id."""
    connection = connect(url)
    for number in range(10):
        put(connection, "FILTER", f"n{number}", number=number)
    some = connection.create_receiver("FILTER", options=Selector("number >= 7"), name="some")
    equal(["n7", "n8", "n9"], bodies(some, 3), "matches")
    fails(Timeout, lambda: some.receive(timeout=NOTHING))
    some.close()
    rest = connection.create_receiver("FILTER", name="rest")
    equal([f"n{number}" for number in range(7)], bodies(rest, 7), "the others")
    connection.close()


@scenario
def bad_selector(url):
    """A selector that cannot be parsed refuses the link and nothing else."""
    connection = connect(url)
    failure = fails(
        LinkDetached,
        lambda: connection.create_receiver("FILTER", options=Selector("number >"), name="bad"),
    )
    check("invalid-field" in failure.condition or "not-" in failure.condition, failure.condition)
    put(connection, "FILTER.ON", "still open")
    connection.close()


@scenario
def unknown_queue(url):
    """A name that does not exist refuses the link with amqp:not-found; the connection goes on."""
    connection = connect(url)
    for create in (connection.create_sender, connection.create_receiver):
        failure = fails(LinkDetached, lambda create=create: create("NO.SUCH.QUEUE"))
        equal("amqp:not-found", failure.condition, "condition")
        check("NO.SUCH.QUEUE" in str(failure), str(failure))
    put(connection, "KNOWN", "still open")
    connection.close()


@scenario
def dynamic_source(url):
    """A dynamic source is a queue of its own that goes with the link's connection."""
    connection = connect(url)
    inbox = connection.create_receiver(None, dynamic=True)
    address = inbox.link.remote_source.address
    check(address, "no address was made")
    other = connect(url)
    put(other, address, "reply")
    equal(["reply"], bodies(inbox, 1), "reply")
    connection.close()
    fails(LinkDetached, lambda: other.create_sender(address))
    other.close()


@scenario
def anonymous_relay(url):
    """A sender without a target puts where each message's `to` says."""
    connection = connect(url)
    sender = connection.create_sender(None)
    for number in range(6):
        sender.send(Message(address=f"RELAY.{number % 3}", body=f"r{number}", durable=True))
    for queue in range(3):
        receiver = connection.create_receiver(f"RELAY.{queue}")
        equal([f"r{queue}", f"r{queue + 3}"], bodies(receiver, 2), "relayed")
    connection.close()


@scenario
def anonymous_relay_unknown(url):
    """A message to an unknown queue is rejected; the link goes on."""
    connection = connect(url)
    sender = connection.create_sender(None)
    fails(SendException, lambda: sender.send(Message(address="NO.SUCH.QUEUE", body="x")))
    sender.send(Message(address="KNOWN", body="known", durable=True))
    connection.close()


@scenario
def queue_full(url, queue, depth):
    """A put to a full queue is rejected with a condition; the link goes on after a get."""
    connection = connect(url)
    sender = connection.create_sender(queue)
    for number in range(int(depth)):
        sender.send(Message(body=number, durable=True))
    fails(SendException, lambda: sender.send(Message(body="one too many", durable=True)))
    receiver = connection.create_receiver(queue, name="other")
    equal([0], bodies(receiver, 1), "first")
    receiver.close()
    # A settled get owes no answer: the room it makes may come a little after it.
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            sender.send(Message(body="fits", durable=True))
            break
        except SendException:
            continue
    equal([1, 2], bodies(connection.create_receiver(queue, name="rest"), 2), "in order")
    connection.close()


@scenario
def ids_of_every_type(url):
    """Message ids of each AMQP type come out as they went in."""
    connection = connect(url)
    sender = connection.create_sender("IDS")
    ids = ["text", uuid.uuid4(), 2**63, b"bytes"]
    for number in ids:
        sender.send(Message(id=number, correlation_id=number, body="x", durable=True))
    receiver = connection.create_receiver("IDS", name="other")
    for number in ids:
        message = receiver.receive(timeout=PATIENCE)
        equal(number, message.id, "message id")
        equal(number, message.correlation_id, "correlation id")
        receiver.accept()
    connection.close()


@scenario
def large(url, size):
    """A message of many frames comes out whole."""
    connection = connect(url)
    body = bytes(range(256)) * (int(size) // 256)
    sender = connection.create_sender("LARGE")
    sender.send(Message(body=body, durable=True))
    receiver = connection.create_receiver("LARGE", name="other")
    message = receiver.receive(timeout=PATIENCE)
    check(message.body == body, "the bodies differ")
    receiver.accept()
    connection.close()


main()
