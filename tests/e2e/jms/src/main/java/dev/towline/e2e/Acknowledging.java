package dev.towline.e2e;

import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.List;
import java.util.Map;

/** The acknowledge modes, and what becomes of messages that were not acknowledged. */
final class Acknowledging {
  private Acknowledging() {}

  static void into(Map<String, Main.Scenario> scenarios) {
    scenarios.put("client_acknowledge", Acknowledging::client);
    scenarios.put("auto_acknowledge", Acknowledging::auto);
    scenarios.put("dups_ok_acknowledge", Acknowledging::dupsOk);
    scenarios.put("recover", Acknowledging::recover);
    scenarios.put("close_with_unacknowledged", Acknowledging::closeWithUnacknowledged);
    scenarios.put("crash_with_unacknowledged", Acknowledging::crashWithUnacknowledged);
    scenarios.put("expect_delivery_count", Acknowledging::expectDeliveryCount);
  }

  private static void client(Bed bed) throws Exception {
    bed.put("CLIENT", "a", "b", "c", "d");
    Session session = bed.session(Session.CLIENT_ACKNOWLEDGE);
    MessageConsumer consumer = Bed.consumer(session, "CLIENT");
    Bed.text(consumer);
    Message second = Bed.get(consumer);
    second.acknowledge();
    Bed.equal("c", Bed.text(consumer), "third");
    session.close();
    Bed.equal(List.of("c", "d"), bed.drain("CLIENT"), "acknowledging takes all before it, too");
  }

  private static void auto(Bed bed) throws Exception {
    bed.put("AUTO", "a", "b");
    Session session = bed.session(Session.AUTO_ACKNOWLEDGE);
    MessageConsumer consumer = Bed.consumer(session, "AUTO");
    Bed.equal("a", Bed.text(consumer), "first");
    session.close();
    Bed.equal(List.of("b"), bed.drain("AUTO"), "what was received is gone");
  }

  private static void dupsOk(Bed bed) throws Exception {
    bed.put("DUPS", "a", "b", "c");
    Session session = bed.session(Session.DUPS_OK_ACKNOWLEDGE);
    MessageConsumer consumer = Bed.consumer(session, "DUPS");
    for (String text : List.of("a", "b", "c")) {
      Bed.equal(text, Bed.text(consumer), "in order");
    }
    session.close();
    Bed.equal(List.of(), bed.drain("DUPS"), "an orderly close acknowledges");
  }

  private static void recover(Bed bed) throws Exception {
    bed.put("RECOVER", "a", "b", "c");
    Session session = bed.session(Session.CLIENT_ACKNOWLEDGE);
    MessageConsumer consumer = Bed.consumer(session, "RECOVER");
    Bed.equal(false, Bed.get(consumer).getJMSRedelivered(), "first time");
    Bed.get(consumer);
    session.recover();
    Message again = Bed.get(consumer);
    Bed.equal("a", ((TextMessage) again).getText(), "from the first one");
    Bed.equal(true, again.getJMSRedelivered(), "redelivered");
    Bed.equal(2, again.getIntProperty("JMSXDeliveryCount"), "delivery count");
    Bed.equal("b", Bed.text(consumer), "then the second");
    Bed.get(consumer).acknowledge();
    session.close();
    Bed.equal(List.of(), bed.drain("RECOVER"), "all acknowledged");
  }

  private static void closeWithUnacknowledged(Bed bed) throws Exception {
    bed.put("UNACKNOWLEDGED", "a", "b", "c", "d", "e");
    Connection connection = bed.connect();
    Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
    MessageConsumer consumer = Bed.consumer(session, "UNACKNOWLEDGED");
    Bed.text(consumer);
    Bed.text(consumer);
    connection.close();
    Bed.equal(List.of("a", "b", "c", "d", "e"), bed.drain("UNACKNOWLEDGED"), "all back, in place");
  }

  /** The test kills this program once it has said its line. */
  private static void crashWithUnacknowledged(Bed bed) throws Exception {
    Session session = bed.session(Session.CLIENT_ACKNOWLEDGE);
    MessageConsumer consumer = Bed.consumer(session, bed.argument(0, ""));
    Bed.get(consumer);
    bed.say("holding");
    bed.hear();
  }

  /** {@code expect_delivery_count URL QUEUE COUNT}: of the first message. */
  private static void expectDeliveryCount(Bed bed) throws Exception {
    Session session = bed.session();
    Message got = Bed.get(Bed.consumer(session, bed.argument(0, "")));
    int count = Integer.parseInt(bed.argument(1, ""));
    Bed.equal(count, got.getIntProperty("JMSXDeliveryCount"), "JMSXDeliveryCount");
    Bed.equal(count > 1, got.getJMSRedelivered(), "JMSRedelivered");
  }
}
