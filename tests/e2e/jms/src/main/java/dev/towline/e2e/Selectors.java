package dev.towline.e2e;

import jakarta.jms.InvalidSelectorException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Selectors as Jakarta Messaging 3.1 section 3.8.1 has them: a table of selectors and who matches. */
final class Selectors {
  private Selectors() {}

  /** Selector, then the numbers of the messages that match; see {@link #fill}. */
  private static final String[][] TABLE = {
    {"number = 3", "3"},
    {"number <> 3 AND number < 6", "0 1 2 4 5"},
    {"number >= 8 OR number = 0", "0 8 9"},
    {"NOT (number > 1)", "0 1"},
    {"number BETWEEN 2 AND 4", "2 3 4"},
    {"number NOT BETWEEN 1 AND 8", "0 9"},
    {"colour = 'red'", "0 3 6 9"},
    {"colour IN ('red', 'green')", "0 1 3 4 6 7 9"},
    {"colour NOT IN ('red', 'green')", "2 5 8"},
    {"colour LIKE 'gr%'", "1 4 7"},
    {"colour LIKE '_lue'", "2 5 8"},
    {"colour NOT LIKE '%e%'", ""},
    {"odd = TRUE", "1 3 5 7 9"},
    {"odd", "1 3 5 7 9"},
    {"NOT odd AND number > 5", "6 8"},
    {"half > 3.9", "8 9"},
    {"half = number / 2.0", "0 1 2 3 4 5 6 7 8 9"},
    {"number * 2 + 1 = 7", "3"},
    {"-number < -8", "9"},
    {"rare IS NOT NULL", "5"},
    {"rare IS NULL AND number > 7", "8 9"},
    {"missing = 1", ""},
    {"missing <> 1", ""},
    {"NOT (missing = 1)", ""},
    {"missing = 1 OR number = 2", "2"},
    {"number = '3'", ""},
    {"quoted = 'it''s'", "4"},
    {"percent LIKE '10!%' ESCAPE '!'", "7"},
    {"big = 9007199254740993", "6"},
    {"number = 0x3", "3"},
    {"number < 1e1 AND number > .85e1", "9"},
    {"JMSPriority > 6", "7 8 9"},
    {"JMSCorrelationID = 'c-2'", "2"},
    {"JMSType = 'even' AND number < 5", "0 2 4"},
    {"JMSDeliveryMode = 'PERSISTENT' AND number < 2", "0 1"},
    {"JMSXGroupID = 'g' AND number = 1", "1"},
    {"(number = 1 OR number = 2) AND colour = 'blue'", "2"},
    {"number=1 or NUMBER=2", "1"},
    {"number = 1 oR nUmBeR = 2 Or number = 3", "1 3"},
  };

  static void into(Map<String, Main.Scenario> scenarios) {
    scenarios.put("selectors", Selectors::table);
    scenarios.put("selector_consumes_only_matches", Selectors::consume);
    scenarios.put("selector_wakes_for_later_message", Selectors::later);
    scenarios.put("selector_errors", Selectors::errors);
    scenarios.put("get_by_id", Selectors::byId);
  }

  private static void fill(Session session, String queue) throws JMSException {
    String[] colours = {"red", "green", "blue"};
    MessageProducer producer = session.createProducer(Bed.queue(session, queue));
    for (int number = 0; number < 10; number++) {
      Message message = session.createTextMessage(Integer.toString(number));
      message.setIntProperty("number", number);
      message.setStringProperty("colour", colours[number % 3]);
      message.setBooleanProperty("odd", number % 2 == 1);
      message.setDoubleProperty("half", number / 2.0);
      message.setJMSCorrelationID("c-" + number);
      message.setJMSType(number % 2 == 0 ? "even" : "odd");
      message.setStringProperty("JMSXGroupID", "g");
      if (number == 4) {
        message.setStringProperty("quoted", "it's");
      }
      if (number == 5) {
        message.setStringProperty("rare", "here");
      }
      if (number == 6) {
        message.setLongProperty("big", 9_007_199_254_740_993L);
      }
      if (number == 7) {
        message.setStringProperty("percent", "10%");
      }
      producer.send(message, jakarta.jms.DeliveryMode.PERSISTENT, number, 0);
    }
    producer.close();
  }

  private static void table(Bed bed) throws Exception {
    Session session = bed.session();
    fill(session, "TABLE");
    List<String> wrong = new ArrayList<>();
    for (String[] row : TABLE) {
      List<String> seen = new ArrayList<>(Browsing.texts(session, "TABLE", row[0]));
      java.util.Collections.sort(seen);
      if (!row[1].equals(String.join(" ", seen))) {
        wrong.add(row[0] + " -> expected " + row[1] + ", saw " + String.join(" ", seen));
      }
    }
    Bed.equal(List.of(), wrong, "selectors");
  }

  private static void consume(Bed bed) throws Exception {
    Session session = bed.session();
    fill(session, "CONSUME");
    MessageConsumer red = session.createConsumer(Bed.queue(session, "CONSUME"), "colour = 'red'");
    for (String text : List.of("9", "6", "3", "0")) {
      Bed.equal(text, Bed.text(red), "matches only, highest priority first");
    }
    Bed.nothing(red);
    red.close();
    Bed.equal(List.of("8", "7", "5", "4", "2", "1"), bed.drain("CONSUME"), "the others stay");
  }

  private static void later(Bed bed) throws Exception {
    Session session = bed.session();
    MessageConsumer waiting = session.createConsumer(Bed.queue(session, "LATER"), "number = 7");
    Bed.nothing(waiting);
    fill(session, "LATER");
    Bed.equal("7", Bed.text(waiting), "a waiting consumer gets a later match");
    Bed.nothing(waiting);
  }

  private static void errors(Bed bed) throws Exception {
    Session session = bed.session();
    for (String bad : List.of("number >", "colour LIKE 5", "= 1", "(number = 1", "number = 'x")) {
      Bed.fails(
          InvalidSelectorException.class,
          () -> session.createConsumer(Bed.queue(session, "ERRORS"), bad));
    }
  }

  private static void byId(Bed bed) throws Exception {
    Session session = bed.session();
    MessageProducer producer = session.createProducer(Bed.queue(session, "BY.ID"));
    List<String> ids = new ArrayList<>();
    for (int number = 0; number < 50; number++) {
      Message message = session.createTextMessage(Integer.toString(number));
      message.setJMSCorrelationID("corr-" + number);
      producer.send(message);
      ids.add(message.getJMSMessageID());
    }
    String byCorrelation = "JMSCorrelationID = 'corr-33'";
    try (MessageConsumer one = session.createConsumer(Bed.queue(session, "BY.ID"), byCorrelation)) {
      Bed.equal("33", Bed.text(one), "by correlation id");
      Bed.nothing(one);
    }
    String byMessage = "JMSMessageID = '" + ids.get(44) + "'";
    try (MessageConsumer one = session.createConsumer(Bed.queue(session, "BY.ID"), byMessage)) {
      Bed.equal("44", Bed.text(one), "by message id");
      Bed.nothing(one);
    }
  }
}
