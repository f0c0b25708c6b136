package dev.towline.e2e;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * What a scenario stands on: the URL, connections that are closed at the end, short ways to put and get,
 * and checks. It also talks with the test that started the program, line by line.
 */
final class Bed implements AutoCloseable {
  /** Answers come within milliseconds; this is for a busy machine. */
  static final long PATIENCE_MS = 20_000;

  /** How long "nothing comes" is watched. */
  static final long NOTHING_MS = 300;

  final String url;
  private final String[] arguments;
  private final List<Connection> connections = new ArrayList<>();
  private final BufferedReader input =
      new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

  Bed(String[] arguments) {
    this.url = arguments[1];
    this.arguments = arguments;
  }

  /** The argument after the URL at this place, or the default. */
  String argument(int at, String unless) {
    return arguments.length > at + 2 ? arguments[at + 2] : unless;
  }

  Connection connect() throws JMSException {
    // More than one address: a group of instances.
    return connect(url.contains(",") ? "failover:(" + url + ")" : url);
  }

  Connection connect(String where) throws JMSException {
    return started(new JmsConnectionFactory(where));
  }

  Connection started(JmsConnectionFactory factory) throws JMSException {
    Connection connection = factory.createConnection();
    connections.add(connection);
    connection.start();
    return connection;
  }

  Session session() throws JMSException {
    return connect().createSession(false, Session.AUTO_ACKNOWLEDGE);
  }

  Session session(int mode) throws JMSException {
    return connect().createSession(mode == Session.SESSION_TRANSACTED, mode);
  }

  /** Puts texts, persistent. */
  void put(String queue, String... texts) throws JMSException {
    Session session = session();
    put(session, queue, texts);
    session.close();
  }

  void put(Session session, String queue, String... texts) throws JMSException {
    try (MessageProducer producer = session.createProducer(session.createQueue(queue))) {
      for (String text : texts) {
        producer.send(session.createTextMessage(text));
      }
    }
  }

  /** Gets until nothing comes, and gives back the texts. */
  List<String> drain(String queue) throws JMSException {
    Session session = session();
    try (MessageConsumer consumer = session.createConsumer(session.createQueue(queue))) {
      List<String> texts = new ArrayList<>();
      for (Message got = consumer.receive(NOTHING_MS); got != null; got = consumer.receive(NOTHING_MS)) {
        texts.add(((TextMessage) got).getText());
      }
      return texts;
    } finally {
      session.close();
    }
  }

  static Message get(MessageConsumer consumer) throws JMSException {
    Message got = consumer.receive(PATIENCE_MS);
    that(got != null, "a message was expected, none came");
    return got;
  }

  static String text(MessageConsumer consumer) throws JMSException {
    return ((TextMessage) get(consumer)).getText();
  }

  static void nothing(MessageConsumer consumer) throws JMSException {
    Message got = consumer.receive(NOTHING_MS);
    that(got == null, "nothing was expected, but came: " + got);
  }

  static MessageConsumer consumer(Session session, String queue) throws JMSException {
    return session.createConsumer(session.createQueue(queue));
  }

  static Queue queue(Session session, String name) throws JMSException {
    return session.createQueue(name);
  }

  static void that(boolean right, String words) {
    if (!right) {
      throw new AssertionError(words);
    }
  }

  static void equal(Object expected, Object seen, String words) {
    that(Objects.equals(expected, seen), words + ": expected " + expected + ", but saw " + seen);
  }

  /** Expects a failure of this kind, and gives it back. */
  static <T extends Throwable> T fails(Class<T> kind, Failing act) {
    try {
      act.run();
    } catch (Throwable failure) {
      if (kind.isInstance(failure)) {
        return kind.cast(failure);
      }
      throw new AssertionError("expected " + kind.getName() + ", but " + failure, failure);
    }
    throw new AssertionError("expected " + kind.getName() + ", but nothing failed");
  }

  /** Something that is expected to fail. */
  @FunctionalInterface
  interface Failing {
    void run() throws Exception;
  }

  void say(String line) {
    System.out.println(line);
    System.out.flush();
  }

  /** Waits until the test says a line. */
  String hear() throws IOException {
    return input.readLine();
  }

  @Override
  public void close() {
    for (Connection connection : connections) {
      try {
        connection.close();
      } catch (JMSException closed) {
        // The scenario is over; a connection that is gone already is fine.
      }
    }
  }
}
