"""Scenarios with Proton's event handlers: transactions, drain, flow control, idle time-out."""

import time

from proton import Delivery, Endpoint, Message, symbol
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import AtMostOnce, Container, ReceiverOption

from towline_proton import PATIENCE, check, connect, equal, main, scenario


class Scenario(MessagingHandler):
    """A handler with a deadline; anything the peer closes with an error ends the scenario."""

    def __init__(self, url, **options):
        super().__init__(**options)
        self.url = url
        self.failure = "it did not end by itself"
        self.connection = None

    def on_start(self, event):
        self.deadline = event.reactor.schedule(PATIENCE, self)
        self.connection = event.container.connect(
            self.url, allowed_mechs="ANONYMOUS", reconnect=False
        )
        self.begin(event)

    def on_timer_task(self, event):
        self.connection.close()

    def on_transport_error(self, event):
        self.failure = f"transport: {event.transport.condition}"

    def on_link_error(self, event):
        self.failure = f"link: {event.link.remote_condition}"
        self.done(self.failure)

    def on_connection_error(self, event):
        self.failure = f"connection: {event.connection.remote_condition}"

    def done(self, failure=None):
        self.failure = failure
        self.deadline.cancel()
        self.connection.close()

    def run(self):
        Container(self).run()
        check(self.failure is None, self.failure)


def put(url, queue, *texts):
    connection = connect(url)
    sender = connection.create_sender(queue)
    for text in texts:
        sender.send(Message(body=text, durable=True))
    connection.close()


def drained(url, queue):
    """The bodies that are in the queue, taken out with a drain."""
    seen = []

    class Drain(Scenario):
        def begin(self, event):
            self.receiver = event.container.create_receiver(self.connection, queue)

        def on_link_opened(self, event):
            event.receiver.drain(1000)

        def on_message(self, event):
            seen.append(event.message.body)

        def on_link_flow(self, event):
            if event.link.is_receiver and event.receiver.credit == 0:
                self.done()

    Drain(url, prefetch=0).run()
    return seen


@scenario
def drain(url):
    """A drain brings what is there and then gives the credit back."""
    equal([], drained(url, "DRAIN"), "an empty queue")
    put(url, "DRAIN", "a", "b", "c")
    equal(["a", "b", "c"], drained(url, "DRAIN"), "three messages")
    equal([], drained(url, "DRAIN"), "and nothing more")


@scenario
def credit(url):
    """Never more deliveries than credit."""
    put(url, "CREDIT", *[f"c{number}" for number in range(10)])

    class Credit(Scenario):
        def begin(self, event):
            self.seen = []
            self.receiver = event.container.create_receiver(self.connection, "CREDIT")

        def on_link_opened(self, event):
            event.receiver.flow(3)

        def on_message(self, event):
            self.seen.append(event.message.body)
            if len(self.seen) == 3:
                # Were a fourth on its way, it would come before this second receiver opens.
                self.second = event.container.create_receiver(
                    self.connection, "CREDIT", name="second"
                )
                self.second.flow(1)
            elif len(self.seen) == 4:
                equal("second", event.receiver.name, "the fourth goes where credit is")
                self.done()

    Credit(url, prefetch=0).run()


@scenario
def pre_settled(url):
    """Pre-settled both ways: nothing is acknowledged, and nothing is left."""

    class Sending(Scenario):
        def begin(self, event):
            self.sent = 0
            self.sender = event.container.create_sender(
                self.connection, "PRESETTLED", options=AtMostOnce()
            )

        def on_sendable(self, event):
            while event.sender.credit and self.sent < 100:
                event.sender.send(Message(body=self.sent))
                self.sent += 1
            if self.sent == 100:
                self.done()

    Sending(url).run()

    class Receiving(Scenario):
        def begin(self, event):
            self.seen = []
            self.receiver = event.container.create_receiver(
                self.connection, "PRESETTLED", options=AtMostOnce()
            )

        def on_message(self, event):
            check(event.delivery.settled, "not settled by the sender")
            self.seen.append(event.message.body)
            if len(self.seen) == 100:
                equal(list(range(100)), self.seen, "in order")
                self.done()

    Receiving(url).run()
    equal([], drained(url, "PRESETTLED"), "nothing is left")


class Unit(Scenario, TransactionHandler):
    """Declares units one after another and works in them."""

    def __init__(self, url, queue, **options):
        Scenario.__init__(self, url, **options)
        self.queue = queue
        self.unit = None

    def declare(self, event):
        self.container = event.container
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declare_failed(self, event):
        self.done("declare failed")

    def on_transaction_commit_failed(self, event):
        self.done("commit failed")


@scenario
def transactional_send(url):
    """As the tx_send example: batches in units; every second one is rolled back."""

    class Sending(Unit):
        def begin(self, event):
            self.units, self.current = 0, 0
            self.sender = event.container.create_sender(self.connection, self.queue)
            self.declare(event)

        def on_transaction_declared(self, event):
            self.unit = event.transaction
            self.current = 0
            self.work()

        def on_sendable(self, event):
            self.work()

        def work(self):
            while self.unit and self.sender.credit and self.current < 5:
                text = f"{self.units}.{self.current}"
                self.unit.send(self.sender, Message(body=text, durable=True))
                self.current += 1
                if self.current == 5:
                    unit, self.unit = self.unit, None
                    unit.abort() if self.units % 2 else unit.commit()

        def next_unit(self):
            self.units += 1
            if self.units == 6:
                self.done()
            else:
                self.container.declare_transaction(self.connection, handler=self)

        def on_transaction_committed(self, event):
            self.next_unit()

        def on_transaction_aborted(self, event):
            self.next_unit()

    Sending(url, "TX.SEND").run()
    expected = [f"{unit}.{at}" for unit in (0, 2, 4) for at in range(5)]
    equal(expected, drained(url, "TX.SEND"), "the committed units, in order")


@scenario
def transactional_receive(url):
    """As the tx_recv example: gets in units; the first unit is rolled back."""
    put(url, "TX.RECEIVE", "a", "b", "c", "d")

    class Receiving(Unit):
        def begin(self, event):
            self.rolled_back, self.seen, self.again = False, [], []
            self.receiver = event.container.create_receiver(self.connection, self.queue)
            self.declare(event)

        def on_transaction_declared(self, event):
            self.unit = event.transaction
            self.receiver.flow(2)

        def on_message(self, event):
            self.unit.accept(event.delivery)
            seen = self.again if self.rolled_back else self.seen
            seen.append(event.message.body)
            if len(seen) == 2:
                self.unit.commit() if self.rolled_back else self.unit.abort()

        def on_transaction_aborted(self, event):
            self.rolled_back = True
            self.container.declare_transaction(self.connection, handler=self)

        def on_transaction_committed(self, event):
            self.done()

    unit = Receiving(url, "TX.RECEIVE", prefetch=0, auto_accept=False)
    unit.run()
    equal(["a", "b"], unit.seen, "first unit")
    equal(["a", "b"], unit.again, "after the rollback, in order")
    equal(["c", "d"], drained(url, "TX.RECEIVE"), "the rest")


@scenario
def idle_timeout_kept_alive(url):
    """We ask for a short idle time-out: the queue manager sends empty frames in time."""

    class Idle(Scenario):
        def on_start(self, event):
            self.started = time.monotonic()
            self.deadline = event.reactor.schedule(3.0, self)
            self.connection = event.container.connect(
                self.url, allowed_mechs="ANONYMOUS", reconnect=False, heartbeat=0.5
            )

        def on_timer_task(self, event):
            state = self.connection.state
            check(state & Endpoint.REMOTE_ACTIVE, "the queue manager was taken for dead")
            self.failure = None
            self.connection.close()

    Idle(url).run()


@scenario
def undeliverable_here(url):
    """modified(undeliverable-here) is not sent to the same link again, but to another one."""
    put(url, "ELSEWHERE", "a")

    class Elsewhere(Scenario):
        given_back = 0

        def begin(self, event):
            self.first = event.container.create_receiver(self.connection, "ELSEWHERE")

        def on_link_opened(self, event):
            event.receiver.flow(2)

        def on_message(self, event):
            if event.receiver == self.first:
                check(self.given_back == 0, "it came to the same link again")
                self.given_back += 1
                delivery = event.delivery
                delivery.local.undeliverable = True
                delivery.local.failed = True
                delivery.update(Delivery.MODIFIED)
                delivery.settle()
                event.container.create_receiver(self.connection, "ELSEWHERE", name="another")
            else:
                check(event.message.delivery_count == 1, "the failure was counted")
                event.delivery.update(Delivery.ACCEPTED)
                event.delivery.settle()
                self.done()

    Elsewhere(url, prefetch=0, auto_accept=False).run()


@scenario
def capabilities(url):
    """A source that asks for a queue gets a queue."""

    class Queue(ReceiverOption):
        def apply(self, receiver):
            receiver.source.capabilities.put_object(symbol("queue"))

    class Asking(Scenario):
        def begin(self, event):
            event.container.create_receiver(self.connection, "CAPABLE", options=Queue())
            event.container.create_sender(self.connection, "CAPABLE")

        def on_sendable(self, event):
            if event.sender.credit and not getattr(self, "sent", False):
                self.sent = True
                event.sender.send(Message(body="x"))

        def on_message(self, event):
            self.done()

    Asking(url).run()


main()
