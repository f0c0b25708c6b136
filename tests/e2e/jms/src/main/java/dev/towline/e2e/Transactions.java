package dev.towline.e2e;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.TransactionRolledBackException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Local transactions: all or nothing, invisible until commit, redelivered after rollback. */
final class Transactions {
  private Transactions() {}

  static void into(Map<String, Main.Scenario> scenarios) {
    scenarios.put("commit", Transactions::commit);
    scenarios.put("rollback_of_puts", Transactions::rollbackOfPuts);
    scenarios.put("rollback_of_gets", Transactions::rollbackOfGets);
    scenarios.put("move_between_queues", Transactions::move);
    scenarios.put("units_are_independent", Transactions::independent);
    scenarios.put("unit_of_thousand", Transactions::thousand);
    scenarios.put("close_mid_unit", Transactions::closeMidUnit);
    scenarios.put("crash_mid_unit", Transactions::crashMidUnit);
    scenarios.put("commit_after_restart", Transactions::commitAfterRestart);
    scenarios.put("rollback_times", Transactions::rollbackTimes);
    scenarios.put("unit_too_many", Transactions::tooMany);
    scenarios.put("unit_too_old", Transactions::tooOld);
  }

  private static void commit(Bed bed) throws Exception {
    Session unit = bed.session(Session.SESSION_TRANSACTED);
    bed.put(unit, "UNIT.A", "a1", "a2");
    bed.put(unit, "UNIT.B", "b1");
    Bed.equal(List.of(), bed.drain("UNIT.A"), "before the commit");
    Bed.equal(List.of(), bed.drain("UNIT.B"), "before the commit");
    unit.commit();
    Bed.equal(List.of("a1", "a2"), bed.drain("UNIT.A"), "after the commit");
    Bed.equal(List.of("b1"), bed.drain("UNIT.B"), "after the commit");
  }

  private static void rollbackOfPuts(Bed bed) throws Exception {
    Session unit = bed.session(Session.SESSION_TRANSACTED);
    bed.put(unit, "ROLLBACK.PUT", "never");
    unit.rollback();
    bed.put(unit, "ROLLBACK.PUT", "always");
    unit.commit();
    Bed.equal(List.of("always"), bed.drain("ROLLBACK.PUT"), "after rollback and commit");
  }

  private static void rollbackOfGets(Bed bed) throws Exception {
    bed.put("ROLLBACK.GET", "a", "b", "c");
    Session unit = bed.session(Session.SESSION_TRANSACTED);
    MessageConsumer consumer = Bed.consumer(unit, "ROLLBACK.GET");
    for (int attempt = 1; attempt <= 3; attempt++) {
      Message first = Bed.get(consumer);
      Bed.equal("a", ((TextMessage) first).getText(), "the first one comes first again");
      Bed.equal(attempt, first.getIntProperty("JMSXDeliveryCount"), "delivery count");
      Bed.equal(attempt > 1, first.getJMSRedelivered(), "redelivered");
      Bed.equal("b", Bed.text(consumer), "in order");
      unit.rollback();
    }
    for (String text : List.of("a", "b", "c")) {
      Bed.equal(text, Bed.text(consumer), "in order");
    }
    unit.commit();
    unit.close();
    Bed.equal(List.of(), bed.drain("ROLLBACK.GET"), "committed gets are gone");
  }

  private static void move(Bed bed) throws Exception {
    bed.put("MOVE.FROM", "a", "b", "c");
    Session unit = bed.session(Session.SESSION_TRANSACTED);
    MessageConsumer consumer = Bed.consumer(unit, "MOVE.FROM");
    MessageProducer producer = unit.createProducer(Bed.queue(unit, "MOVE.TO"));
    producer.send(Bed.get(consumer));
    unit.rollback();
    Bed.equal(List.of(), bed.drain("MOVE.TO"), "rolled back");
    for (int at = 0; at < 3; at++) {
      producer.send(Bed.get(consumer));
      unit.commit();
    }
    Bed.equal(List.of("a", "b", "c"), bed.drain("MOVE.TO"), "moved");
    unit.close();
    Bed.equal(List.of(), bed.drain("MOVE.FROM"), "gone");
  }

  private static void independent(Bed bed) throws Exception {
    Connection connection = bed.connect();
    Session one = connection.createSession(true, Session.SESSION_TRANSACTED);
    Session two = connection.createSession(true, Session.SESSION_TRANSACTED);
    bed.put(one, "INDEPENDENT", "one");
    bed.put(two, "INDEPENDENT", "two");
    one.rollback();
    two.commit();
    Bed.equal(List.of("two"), bed.drain("INDEPENDENT"), "only the committed unit");
  }

  private static void thousand(Bed bed) throws Exception {
    Session unit = bed.session(Session.SESSION_TRANSACTED);
    MessageProducer producer = unit.createProducer(Bed.queue(unit, "THOUSAND"));
    List<String> expected = new ArrayList<>();
    for (int at = 0; at < 1000; at++) {
      expected.add("t" + at);
      producer.send(unit.createTextMessage("t" + at));
    }
    unit.commit();
    MessageConsumer consumer = Bed.consumer(unit, "THOUSAND");
    for (String text : expected) {
      Bed.equal(text, Bed.text(consumer), "in order");
    }
    unit.rollback();
    unit.close();
    Bed.equal(expected, bed.drain("THOUSAND"), "all back after the rollback, in order");
  }

  private static void closeMidUnit(Bed bed) throws Exception {
    bed.put("CLOSED.GET", "stays");
    Connection connection = bed.connect();
    Session unit = connection.createSession(true, Session.SESSION_TRANSACTED);
    bed.put(unit, "CLOSED.PUT", "never");
    Bed.equal("stays", Bed.text(Bed.consumer(unit, "CLOSED.GET")), "got");
    connection.close();
    Bed.equal(List.of(), bed.drain("CLOSED.PUT"), "uncommitted puts");
    Bed.equal(List.of("stays"), bed.drain("CLOSED.GET"), "uncommitted gets");
  }

  /** Puts to CRASH.PUT and gets from CRASH.GET; the test kills somebody after the line. */
  private static void crashMidUnit(Bed bed) throws Exception {
    bed.put("CRASH.GET", "g1", "g2", "g3");
    Session unit = bed.session(Session.SESSION_TRANSACTED);
    bed.put(unit, "CRASH.PUT", "p1", "p2");
    MessageConsumer consumer = Bed.consumer(unit, "CRASH.GET");
    Bed.text(consumer);
    Bed.text(consumer);
    bed.say("prepared");
    bed.hear();
  }

  /** With failover, the unit that was open when the queue manager went must not commit. */
  private static void commitAfterRestart(Bed bed) throws Exception {
    String failover = "failover:(" + bed.url + ")?failover.reconnectDelay=20&failover.maxReconnectDelay=200";
    Session unit = bed.connect(failover).createSession(true, Session.SESSION_TRANSACTED);
    bed.put(unit, "INTERRUPTED", "never");
    bed.say("prepared");
    bed.hear();
    Bed.fails(TransactionRolledBackException.class, unit::commit);
    bed.put(unit, "INTERRUPTED", "second unit");
    unit.commit();
    Bed.equal(List.of("second unit"), bed.drain("INTERRUPTED"), "after the restart");
  }

  /** {@code rollback_times URL QUEUE TIMES}: gets the first message and rolls back, so often. */
  private static void rollbackTimes(Bed bed) throws Exception {
    Session unit = bed.session(Session.SESSION_TRANSACTED);
    MessageConsumer consumer = Bed.consumer(unit, bed.argument(0, ""));
    for (int at = 0; at < Integer.parseInt(bed.argument(1, "1")); at++) {
      Bed.get(consumer);
      unit.rollback();
    }
  }

  /** {@code unit_too_many URL LIMIT}: the unit with one message more must not commit. */
  private static void tooMany(Bed bed) throws Exception {
    int limit = Integer.parseInt(bed.argument(0, ""));
    Session unit = bed.session(Session.SESSION_TRANSACTED);
    String[] texts = new String[limit + 1];
    java.util.Arrays.fill(texts, "x");
    Bed.fails(
        JMSException.class,
        () -> {
          bed.put(unit, "TOO.MANY", texts);
          unit.commit();
        });
    Bed.equal(List.of(), bed.drain("TOO.MANY"), "nothing of it");
    Session next = bed.session(Session.SESSION_TRANSACTED);
    bed.put(next, "TOO.MANY", "fits");
    next.commit();
    Bed.equal(List.of("fits"), bed.drain("TOO.MANY"), "a unit within the limit");
  }

  /** The test sets a limit of a second or so; the unit is rolled back by the queue manager. */
  private static void tooOld(Bed bed) throws Exception {
    bed.put("TOO.OLD.GET", "back");
    Session unit = bed.session(Session.SESSION_TRANSACTED);
    bed.put(unit, "TOO.OLD", "never");
    Bed.text(Bed.consumer(unit, "TOO.OLD.GET"));
    Session other = bed.session();
    // The message comes back when the unit is rolled back, and not before.
    Bed.equal("back", Bed.text(Bed.consumer(other, "TOO.OLD.GET")), "rolled back by age");
    Bed.fails(JMSException.class, unit::commit);
    Bed.equal(List.of(), bed.drain("TOO.OLD"), "nothing of it");
  }
}
