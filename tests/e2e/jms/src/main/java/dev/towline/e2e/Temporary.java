package dev.towline.e2e;

import jakarta.jms.Connection;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TextMessage;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/** Temporary queues: request and reply, one owner, gone with the connection. */
final class Temporary {
  private Temporary() {}

  static void into(Map<String, Main.Scenario> scenarios) {
    scenarios.put("request_reply", Temporary::requestReply);
    scenarios.put("temporary_queues_are_distinct", Temporary::distinct);
    scenarios.put("temporary_queue_ends_with_connection", Temporary::ends);
    scenarios.put("temporary_queue_deleted", Temporary::deleted);
  }

  private static void requestReply(Bed bed) throws Exception {
    Session serving = bed.session();
    MessageConsumer requests = Bed.consumer(serving, "REQUESTS");
    MessageProducer replies = serving.createProducer(null);
    requests.setMessageListener(
        request -> {
          try {
            TextMessage reply = serving.createTextMessage("re: " + ((TextMessage) request).getText());
            reply.setJMSCorrelationID(request.getJMSMessageID());
            replies.send(request.getJMSReplyTo(), reply);
          } catch (JMSException broken) {
            throw new IllegalStateException(broken);
          }
        });
    Session asking = bed.session();
    TemporaryQueue inbox = asking.createTemporaryQueue();
    MessageProducer producer = asking.createProducer(Bed.queue(asking, "REQUESTS"));
    MessageConsumer consumer = asking.createConsumer(inbox);
    for (int at = 0; at < 20; at++) {
      TextMessage request = asking.createTextMessage("question " + at);
      request.setJMSReplyTo(inbox);
      producer.send(request);
      Message reply = Bed.get(consumer);
      Bed.equal(request.getJMSMessageID(), reply.getJMSCorrelationID(), "correlation");
      Bed.equal("re: question " + at, ((TextMessage) reply).getText(), "reply");
    }
  }

  private static void distinct(Bed bed) throws Exception {
    Session session = bed.session();
    Set<String> names = new HashSet<>();
    for (int at = 0; at < 20; at++) {
      names.add(session.createTemporaryQueue().getQueueName());
    }
    Bed.equal(20, names.size(), "distinct names");
  }

  private static void ends(Bed bed) throws Exception {
    Connection owner = bed.connect();
    Session session = owner.createSession(false, Session.AUTO_ACKNOWLEDGE);
    String name = session.createTemporaryQueue().getQueueName();
    Session other = bed.session();
    other.createProducer(Bed.queue(other, name)).send(other.createTextMessage("while it lives"));
    owner.close();
    Bed.fails(
        InvalidDestinationException.class,
        () -> other.createProducer(Bed.queue(other, name)));
  }

  private static void deleted(Bed bed) throws Exception {
    Session session = bed.session();
    TemporaryQueue queue = session.createTemporaryQueue();
    MessageConsumer consumer = session.createConsumer(queue);
    Bed.fails(JMSException.class, queue::delete);
    consumer.close();
    queue.delete();
    Bed.fails(JMSException.class, () -> session.createConsumer(queue));
  }
}
