package dev.towline.e2e;

import jakarta.jms.BytesMessage;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.MessageProducer;
import jakarta.jms.ResourceAllocationException;
import jakarta.jms.Session;
import java.util.List;
import java.util.Map;

/** Refusals come as the exception that JMS has for them, and the session goes on. */
final class Refusals {
  private Refusals() {}

  static void into(Map<String, Main.Scenario> scenarios) {
    scenarios.put("unknown_queue", Refusals::unknownQueue);
    scenarios.put("queue_full", Refusals::queueFull);
    scenarios.put("message_too_long", Refusals::tooLong);
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
    Bed.fails(JMSException.class, () -> producer.send(message));
    bed.put(queue, "short");
    Bed.equal(List.of("short"), bed.drain(queue), "texts");
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
