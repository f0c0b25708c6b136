package dev.towline.e2e;

import jakarta.jms.BytesMessage;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.JMSRuntimeException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ResourceAllocationException;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.List;
import java.util.Map;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Refusals come as the exception that JMS has for them, and the session goes on. */
final class Refusals {
  private Refusals() {}

  static void into(Map<String, Main.Scenario> scenarios) {
    scenarios.put("unknown_queue", Refusals::unknownQueue);
    scenarios.put("queue_full", Refusals::queueFull);
    scenarios.put("message_too_long", Refusals::tooLong);
    scenarios.put("topics_are_refused", Refusals::topics);
    scenarios.put("put_inhibited", Refusals::putInhibited);
    scenarios.put("get_inhibited", Refusals::getInhibited);
  }

  private static void unknownQueue(Bed bed) throws Exception {
    Session session = bed.session();
    Bed.fails(
        InvalidDestinationException.class,
        () -> session.createProducer(Bed.queue(session, "NO.SUCH.QUEUE")));
    Bed.fails(InvalidDestinationException.class, () -> Bed.consumer(session, "NO.SUCH.QUEUE"));
    bed.put(session, "KNOWN", "the session goes on");
    Bed.equal(List.of("the session goes on"), bed.drain("KNOWN"), "texts");
  }

  /** {@code queue_full URL QUEUE MAXDEPTH}. */
  private static void queueFull(Bed bed) throws Exception {
    String queue = bed.argument(0, "");
    int depth = Integer.parseInt(bed.argument(1, ""));
    Session session = bed.session();
    MessageProducer producer = session.createProducer(Bed.queue(session, queue));
    for (int at = 0; at < depth; at++) {
      producer.send(session.createTextMessage("fits"));
    }
    Bed.fails(
        ResourceAllocationException.class,
        () -> producer.send(session.createTextMessage("one too many")));
    Bed.equal(depth, bed.drain(queue).size(), "depth");
    bed.put(queue, "fits again");
    Bed.equal(List.of("fits again"), bed.drain(queue), "texts");
  }

  /** {@code message_too_long URL QUEUE MAXMSGL}. */
  private static void tooLong(Bed bed) throws Exception {
    String queue = bed.argument(0, "");
    int most = Integer.parseInt(bed.argument(1, ""));
    Session session = bed.session();
    MessageProducer producer = session.createProducer(Bed.queue(session, queue));
    BytesMessage message = session.createBytesMessage();
    message.writeBytes(new byte[most + 1]);
    JMSException failure = Bed.fails(JMSException.class, () -> producer.send(message));
    Bed.that(failure.getMessage().contains("MAXMSGL(" + most + ")"), failure.getMessage());
    BytesMessage far = session.createBytesMessage();
    far.writeBytes(new byte[most + 1_000_000]);
    Bed.fails(JMSException.class, () -> producer.send(far));
    // The producer outlives both, and a body of exactly so many bytes goes in.
    BytesMessage exact = session.createBytesMessage();
    exact.writeBytes(new byte[most]);
    producer.send(exact);
    producer.send(session.createTextMessage("short"));
    MessageConsumer consumer = Bed.consumer(session, queue);
    Bed.equal((long) most, ((BytesMessage) Bed.get(consumer)).getBodyLength(), "body");
    Bed.equal("short", Bed.text(consumer), "text");
  }

  /** Until topics exist, no way leads to one, and no queue of that name appears. */
  private static void topics(Bed bed) throws Exception {
    Session session = bed.session();
    Topic topic = session.createTopic("PRICES");
    refused(() -> session.createProducer(topic));
    refused(() -> session.createConsumer(topic));
    refused(session::createTemporaryTopic);
    refused(() -> session.createProducer(null).send(topic, session.createTextMessage("lost?")));
    JmsConnectionFactory factory = new JmsConnectionFactory(bed.url);
    factory.setClientID("subscriber");
    Session named = bed.started(factory).createSession(false, Session.AUTO_ACKNOWLEDGE);
    refused(() -> named.createDurableSubscriber(topic, "name"));
    refused(() -> named.createSharedConsumer(topic, "name"));
    Bed.fails(InvalidDestinationException.class, () -> named.unsubscribe("name"));
    try (JMSContext context = new JmsConnectionFactory(bed.url).createContext()) {
      Bed.fails(
          JMSRuntimeException.class,
          () -> context.createProducer().send(context.createTopic("PRICES"), "lost?"));
      // A reply may be wanted at a topic of the one who asks: that is for the responder.
      TextMessage message = context.createTextMessage("to a queue");
      message.setJMSReplyTo(context.createTopic("ANSWERS"));
      context.createProducer().send(context.createQueue("ORDERS"), message);
    }
    Bed.equal(List.of("to a queue"), bed.drain("ORDERS"), "texts");
  }

  private static void refused(Bed.Failing act) {
    JMSException failure = Bed.fails(JMSException.class, act);
    Bed.that(failure.getMessage().contains("topics are not supported yet"), failure.getMessage());
  }

  private static void putInhibited(Bed bed) throws Exception {
    Session session = bed.session();
    Bed.fails(JMSException.class, () -> bed.put(session, bed.argument(0, ""), "no"));
    Bed.equal(List.of(), bed.drain(bed.argument(0, "")), "texts");
  }

  private static void getInhibited(Bed bed) throws Exception {
    String queue = bed.argument(0, "");
    Session session = bed.session();
    bed.put(session, queue, "put goes on");
    Bed.fails(JMSException.class, () -> Bed.get(Bed.consumer(session, queue)));
  }
}
