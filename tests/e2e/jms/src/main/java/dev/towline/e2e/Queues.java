package dev.towline.e2e;

import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/** Putting and getting: order, priority, expiry, listeners, many sessions, reconnecting. */
final class Queues {
  private Queues() {}

  static void into(Map<String, Main.Scenario> scenarios) {
    scenarios.put("put_get", Queues::putGet);
    scenarios.put("order", Queues::order);
    scenarios.put("priorities", Queues::priorities);
    scenarios.put("expiry", Queues::expiry);
    scenarios.put("listener", Queues::listener);
    scenarios.put("asynchronous_send", Queues::asynchronousSend);
    scenarios.put("many_sessions", Queues::manySessions);
    scenarios.put("sharing", Queues::sharing);
    scenarios.put("reconnect", Queues::reconnect);
    scenarios.put("put_both_modes", Queues::putBothModes);
    scenarios.put("expect", Queues::expect);
    scenarios.put("hold_connection", Queues::holdConnection);
  }

  private static void putGet(Bed bed) throws Exception {
    bed.put("PUT.GET", "hello");
    Session session = bed.session();
    MessageConsumer consumer = Bed.consumer(session, "PUT.GET");
    Bed.equal("hello", Bed.text(consumer), "text");
    Bed.nothing(consumer);
  }

  private static void order(Bed bed) throws Exception {
    Session session = bed.session();
    String[] texts = new String[500];
    for (int at = 0; at < texts.length; at++) {
      texts[at] = Integer.toString(at);
    }
    bed.put(session, "ORDER", texts);
    Bed.equal(List.of(texts), bed.drain("ORDER"), "order");
  }

  private static void priorities(Bed bed) throws Exception {
    Session session = bed.session();
    List<Integer> mixed = new ArrayList<>();
    for (int at = 0; at < 30; at++) {
      mixed.add(at);
    }
    Collections.shuffle(mixed, new java.util.Random(7));
    try (MessageProducer producer = session.createProducer(Bed.queue(session, "PRIORITIES"))) {
      for (int number : mixed) {
        TextMessage message = session.createTextMessage(Integer.toString(number));
        producer.send(message, DeliveryMode.PERSISTENT, number % 10, 0);
      }
    }
    List<String> expected = new ArrayList<>();
    for (int priority = 9; priority >= 0; priority--) {
      for (int number : mixed) {
        if (number % 10 == priority) {
          expected.add(Integer.toString(number));
        }
      }
    }
    Bed.equal(expected, bed.drain("PRIORITIES"), "highest priority first, then first in first out");
  }

  private static void expiry(Bed bed) throws Exception {
    Session session = bed.session();
    MessageProducer producer = session.createProducer(Bed.queue(session, "EXPIRY"));
    TextMessage brief = session.createTextMessage("brief");
    producer.send(brief, DeliveryMode.PERSISTENT, 4, 250);
    producer.send(session.createTextMessage("lasting"), DeliveryMode.PERSISTENT, 4, 600_000);
    producer.send(session.createTextMessage("eternal"));
    while (System.currentTimeMillis() <= brief.getJMSExpiration() + 50) {
      Thread.onSpinWait();
    }
    MessageConsumer consumer = Bed.consumer(session, "EXPIRY");
    Message lasting = Bed.get(consumer);
    Bed.equal("lasting", ((TextMessage) lasting).getText(), "an expired message is never delivered");
    long left = lasting.getJMSExpiration() - System.currentTimeMillis();
    Bed.that(left > 500_000 && left <= 600_000, "time left: " + left);
    Bed.equal("eternal", Bed.text(consumer), "without a time to live");
    Bed.nothing(consumer);
  }

  private static void listener(Bed bed) throws Exception {
    LinkedBlockingQueue<String> seen = new LinkedBlockingQueue<>();
    Session session = bed.session();
    Bed.consumer(session, "LISTENER")
        .setMessageListener(
            message -> {
              try {
                seen.add(((TextMessage) message).getText());
              } catch (Exception broken) {
                seen.add(broken.toString());
              }
            });
    String[] texts = new String[300];
    for (int at = 0; at < texts.length; at++) {
      texts[at] = "m" + at;
    }
    bed.put("LISTENER", texts);
    for (String text : texts) {
      Bed.equal(text, seen.poll(Bed.PATIENCE_MS, TimeUnit.MILLISECONDS), "heard");
    }
  }

  private static void asynchronousSend(Bed bed) throws Exception {
    Session session = bed.session();
    int count = 500;
    CountDownLatch done = new CountDownLatch(count);
    AtomicReference<Exception> failure = new AtomicReference<>();
    CompletionListener completion =
        new CompletionListener() {
          @Override
          public void onCompletion(Message message) {
            done.countDown();
          }

          @Override
          public void onException(Message message, Exception exception) {
            failure.set(exception);
            done.countDown();
          }
        };
    MessageProducer producer = session.createProducer(Bed.queue(session, "ASYNCHRONOUS"));
    for (int at = 0; at < count; at++) {
      producer.send(session.createTextMessage("a" + at), completion);
    }
    Bed.that(done.await(Bed.PATIENCE_MS, TimeUnit.MILLISECONDS), "not all were completed");
    Bed.equal(null, failure.get(), "failure");
    Bed.equal(count, bed.drain("ASYNCHRONOUS").size(), "count");
  }

  private static void manySessions(Bed bed) throws Exception {
    Connection connection = bed.connect();
    List<Session> sessions = new ArrayList<>();
    for (int at = 0; at < 60; at++) {
      Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      sessions.add(session);
      bed.put(session, "SESSION." + at, "for " + at);
    }
    for (int at = 0; at < sessions.size(); at++) {
      MessageConsumer consumer = Bed.consumer(sessions.get(at), "SESSION." + at);
      Bed.equal("for " + at, Bed.text(consumer), "own queue");
    }
    for (Session session : sessions) {
      session.close();
    }
  }

  private static void sharing(Bed bed) throws Exception {
    String few = bed.url + "?jms.prefetchPolicy.queuePrefetch=1";
    MessageConsumer[] consumers = new MessageConsumer[3];
    for (int at = 0; at < consumers.length; at++) {
      Session session = bed.connect(few).createSession(false, Session.AUTO_ACKNOWLEDGE);
      consumers[at] = Bed.consumer(session, "SHARING");
    }
    // Three are left over: a consumer that is slow to ask again must not find none.
    String[] texts = new String[93];
    for (int at = 0; at < texts.length; at++) {
      texts[at] = "s" + at;
    }
    bed.put("SHARING", texts);
    Set<String> seen = new HashSet<>();
    for (int at = 0; at < 90; at++) {
      seen.add(Bed.text(consumers[at % consumers.length]));
    }
    Bed.that(List.of(texts).containsAll(seen), "only what was put");
    Bed.that(seen.size() == 90, "each message to one consumer, and every consumer gets its share");
  }

  /** The test restarts the queue manager at the same address between the two lines. */
  private static void reconnect(Bed bed) throws Exception {
    String failover = "failover:(" + bed.url + ")?failover.reconnectDelay=20&failover.maxReconnectDelay=200";
    Session session = bed.connect(failover).createSession(false, Session.AUTO_ACKNOWLEDGE);
    MessageProducer producer = session.createProducer(Bed.queue(session, "RECONNECT"));
    producer.send(session.createTextMessage("before"));
    bed.say("before");
    bed.hear();
    producer.send(session.createTextMessage("after"));
    MessageConsumer consumer = Bed.consumer(session, "RECONNECT");
    Bed.equal("before", Bed.text(consumer), "survived");
    Bed.equal("after", Bed.text(consumer), "put after the restart");
  }

  private static void putBothModes(Bed bed) throws Exception {
    Session session = bed.session();
    MessageProducer producer = session.createProducer(Bed.queue(session, bed.argument(0, "")));
    producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
    producer.send(session.createTextMessage("volatile"));
    producer.setDeliveryMode(DeliveryMode.PERSISTENT);
    producer.send(session.createTextMessage("persistent"));
  }

  /** {@code expect URL QUEUE TEXT...}: exactly these texts are in the queue, in this order. */
  private static void expect(Bed bed) throws Exception {
    List<String> expected = new ArrayList<>();
    for (int at = 1; bed.argument(at, null) != null; at++) {
      expected.add(bed.argument(at, null));
    }
    Bed.equal(expected, bed.drain(bed.argument(0, "")), "texts");
  }

  /** Holds a connection until the queue manager closes it, and says why it did. */
  private static void holdConnection(Bed bed) throws Exception {
    LinkedBlockingQueue<String> endings = new LinkedBlockingQueue<>();
    Connection connection = bed.connect();
    connection.setExceptionListener(failure -> endings.add(failure.toString()));
    connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    bed.say("connected");
    String ending = endings.poll(Bed.PATIENCE_MS, TimeUnit.MILLISECONDS);
    bed.say("ended " + ending);
    Bed.that(ending != null, "the connection stayed open");
  }
}
