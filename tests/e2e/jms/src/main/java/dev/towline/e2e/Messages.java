package dev.towline.e2e;

import jakarta.jms.BytesMessage;
import jakarta.jms.DeliveryMode;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;

/** Messages come out as they went in: types, headers, properties, and any size. */
final class Messages {
  private Messages() {}

  static void into(Map<String, Main.Scenario> scenarios) {
    scenarios.put("message_types", Messages::types);
    scenarios.put("headers_and_properties", Messages::headersAndProperties);
    scenarios.put("large_message", Messages::large);
    scenarios.put("odd_texts", Messages::oddTexts);
  }

  private static void types(Bed bed) throws Exception {
    Session session = bed.session();
    MessageProducer producer = session.createProducer(Bed.queue(session, "TYPES"));
    producer.send(session.createTextMessage("text"));
    BytesMessage bytes = session.createBytesMessage();
    bytes.writeInt(42);
    bytes.writeUTF("bytes");
    producer.send(bytes);
    MapMessage map = session.createMapMessage();
    map.setString("name", "map");
    map.setLong("number", 1L << 40);
    map.setBytes("raw", new byte[] {1, 2, 3});
    producer.send(map);
    StreamMessage stream = session.createStreamMessage();
    stream.writeBoolean(true);
    stream.writeDouble(2.5);
    stream.writeString("stream");
    producer.send(stream);
    producer.send(session.createObjectMessage(new ArrayList<>(List.of("object", "list"))));
    producer.send(session.createMessage());

    MessageConsumer consumer = Bed.consumer(session, "TYPES");
    Bed.equal("text", ((TextMessage) Bed.get(consumer)).getText(), "text message");
    BytesMessage gotBytes = (BytesMessage) Bed.get(consumer);
    Bed.equal(42, gotBytes.readInt(), "bytes message");
    Bed.equal("bytes", gotBytes.readUTF(), "bytes message");
    MapMessage gotMap = (MapMessage) Bed.get(consumer);
    Bed.equal("map", gotMap.getString("name"), "map message");
    Bed.equal(1L << 40, gotMap.getLong("number"), "map message");
    Bed.that(Arrays.equals(new byte[] {1, 2, 3}, gotMap.getBytes("raw")), "map message bytes");
    StreamMessage gotStream = (StreamMessage) Bed.get(consumer);
    Bed.equal(true, gotStream.readBoolean(), "stream message");
    Bed.equal(2.5, gotStream.readDouble(), "stream message");
    Bed.equal("stream", gotStream.readString(), "stream message");
    ObjectMessage gotObject = (ObjectMessage) Bed.get(consumer);
    Bed.equal(List.of("object", "list"), gotObject.getObject(), "object message");
    Message plain = Bed.get(consumer);
    Bed.that(!(plain instanceof TextMessage), "a message without a body");
    Bed.nothing(consumer);
  }

  private static void headersAndProperties(Bed bed) throws Exception {
    Session session = bed.session();
    MessageProducer producer = session.createProducer(Bed.queue(session, "HEADERS"));
    Message sent = session.createTextMessage("body");
    sent.setJMSCorrelationID("correlation-1");
    sent.setJMSType("a type");
    sent.setJMSReplyTo(session.createQueue("HEADERS.REPLY"));
    sent.setBooleanProperty("aBoolean", true);
    sent.setByteProperty("aByte", (byte) -5);
    sent.setShortProperty("aShort", (short) -500);
    sent.setIntProperty("anInt", -50_000);
    sent.setLongProperty("aLong", Long.MIN_VALUE);
    sent.setFloatProperty("aFloat", 1.5f);
    sent.setDoubleProperty("aDouble", -2.25);
    sent.setStringProperty("aString", "wörld");
    sent.setStringProperty("JMSXGroupID", "group-1");
    sent.setIntProperty("JMSXGroupSeq", 3);
    producer.send(sent, DeliveryMode.PERSISTENT, 7, 0);

    Message got = Bed.get(Bed.consumer(session, "HEADERS"));
    Bed.equal(sent.getJMSMessageID(), got.getJMSMessageID(), "JMSMessageID");
    Bed.equal(sent.getJMSTimestamp(), got.getJMSTimestamp(), "JMSTimestamp");
    Bed.equal("correlation-1", got.getJMSCorrelationID(), "JMSCorrelationID");
    Bed.equal("a type", got.getJMSType(), "JMSType");
    Bed.equal("HEADERS.REPLY", ((Queue) got.getJMSReplyTo()).getQueueName(), "JMSReplyTo");
    Bed.equal("HEADERS", ((Queue) got.getJMSDestination()).getQueueName(), "JMSDestination");
    Bed.equal(7, got.getJMSPriority(), "JMSPriority");
    Bed.equal(DeliveryMode.PERSISTENT, got.getJMSDeliveryMode(), "JMSDeliveryMode");
    Bed.equal(0L, got.getJMSExpiration(), "JMSExpiration");
    Bed.equal(false, got.getJMSRedelivered(), "JMSRedelivered");
    Bed.equal(1, got.getIntProperty("JMSXDeliveryCount"), "JMSXDeliveryCount");
    Bed.equal(true, got.getBooleanProperty("aBoolean"), "boolean");
    Bed.equal((byte) -5, got.getByteProperty("aByte"), "byte");
    Bed.equal((short) -500, got.getShortProperty("aShort"), "short");
    Bed.equal(-50_000, got.getIntProperty("anInt"), "int");
    Bed.equal(Long.MIN_VALUE, got.getLongProperty("aLong"), "long");
    Bed.equal(1.5f, got.getFloatProperty("aFloat"), "float");
    Bed.equal(-2.25, got.getDoubleProperty("aDouble"), "double");
    Bed.equal("wörld", got.getStringProperty("aString"), "string");
    Bed.equal("group-1", got.getStringProperty("JMSXGroupID"), "JMSXGroupID");
    Bed.equal(3, got.getIntProperty("JMSXGroupSeq"), "JMSXGroupSeq");
  }

  /** {@code large_message URL BYTES QUEUE}. */
  private static void large(Bed bed) throws Exception {
    int size = Integer.parseInt(bed.argument(0, "10000000"));
    String queue = bed.argument(1, "LARGE");
    byte[] body = new byte[size];
    new Random(size).nextBytes(body);
    Session session = bed.session();
    MessageProducer producer = session.createProducer(Bed.queue(session, queue));
    BytesMessage sent = session.createBytesMessage();
    sent.writeBytes(body);
    producer.send(sent);
    BytesMessage got = (BytesMessage) Bed.get(Bed.consumer(session, queue));
    Bed.equal((long) size, got.getBodyLength(), "length");
    byte[] seen = new byte[size];
    Bed.equal(size, got.readBytes(seen), "read");
    Bed.that(Arrays.equals(body, seen), "the bytes differ");
  }

  private static void oddTexts(Bed bed) throws Exception {
    String[] texts = {"", "\u0000", "ünïcödé \uD83D\uDE82", "x".repeat(70_000), "\r\n\t'\"\\"};
    bed.put("ODD", texts);
    Bed.equal(List.of(texts), bed.drain("ODD"), "texts");
    bed.put("Odd.Name-ÄÖ 1/2", "names have case and characters");
    Bed.equal(1, bed.drain("Odd.Name-ÄÖ 1/2").size(), "count");
  }
}
