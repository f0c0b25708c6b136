package dev.towline.e2e;

import jakarta.jms.MessageConsumer;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import java.util.Map;

/** Browsing shows what could be got, in order, and takes nothing. */
final class Browsing {
  private Browsing() {}

  static void into(Map<String, Main.Scenario> scenarios) {
    scenarios.put("browse", Browsing::browse);
    scenarios.put("browse_empty", Browsing::empty);
    scenarios.put("browse_many", Browsing::many);
    scenarios.put("browse_sees_no_locked_message", Browsing::locked);
  }

  static List<String> texts(Session session, String queue) throws Exception {
    return texts(session, queue, null);
  }

  static List<String> texts(Session session, String queue, String selector) throws Exception {
    List<String> texts = new ArrayList<>();
    try (QueueBrowser browser = session.createBrowser(Bed.queue(session, queue), selector)) {
      Enumeration<?> found = browser.getEnumeration();
      while (found.hasMoreElements()) {
        texts.add(((TextMessage) found.nextElement()).getText());
      }
    }
    return texts;
  }

  private static void browse(Bed bed) throws Exception {
    bed.put("BROWSE", "a", "b", "c");
    Session session = bed.session();
    Bed.equal(List.of("a", "b", "c"), texts(session, "BROWSE"), "first look");
    Bed.equal(List.of("a", "b", "c"), texts(session, "BROWSE"), "second look");
    MessageConsumer consumer = Bed.consumer(session, "BROWSE");
    for (String text : List.of("a", "b", "c")) {
      jakarta.jms.Message got = Bed.get(consumer);
      Bed.equal(text, ((TextMessage) got).getText(), "still there");
      Bed.equal(1, got.getIntProperty("JMSXDeliveryCount"), "browsing does not count");
    }
  }

  private static void empty(Bed bed) throws Exception {
    Bed.equal(List.of(), texts(bed.session(), "BROWSE.EMPTY"), "an empty queue");
  }

  private static void many(Bed bed) throws Exception {
    String[] texts = new String[2500];
    for (int at = 0; at < texts.length; at++) {
      texts[at] = "n" + at;
    }
    Session unit = bed.session(Session.SESSION_TRANSACTED);
    bed.put(unit, "BROWSE.MANY", texts);
    unit.commit();
    Bed.equal(List.of(texts), texts(bed.session(), "BROWSE.MANY"), "beyond one credit window");
  }

  private static void locked(Bed bed) throws Exception {
    bed.put("BROWSE.LOCKED", "a", "b", "c");
    Session unit =
        bed.connect(bed.url + "?jms.prefetchPolicy.all=0").createSession(true, Session.SESSION_TRANSACTED);
    Bed.equal("a", Bed.text(Bed.consumer(unit, "BROWSE.LOCKED")), "got in a unit");
    bed.put(unit, "BROWSE.LOCKED", "uncommitted");
    Bed.equal(List.of("b", "c"), texts(bed.session(), "BROWSE.LOCKED"), "while the unit is open");
    unit.rollback();
    Bed.equal(List.of("a", "b", "c"), texts(bed.session(), "BROWSE.LOCKED"), "after the rollback");
  }
}
