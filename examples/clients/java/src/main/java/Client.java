import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.Message;
import jakarta.jms.Queue;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Puts one message on a queue, gets one, or moves one to another queue in a unit of work: the least that a Java program needs.
 *
 * <pre>
 * mvn -q package
 * java -cp "target/client.jar:target/lib/*" Client amqp://127.0.0.1:5672 DEV.QUEUE.1 put hello
 * java -cp "target/client.jar:target/lib/*" Client amqp://127.0.0.1:5672 DEV.QUEUE.1 move DEV.QUEUE.2
 * java -cp "target/client.jar:target/lib/*" Client amqp://127.0.0.1:5672 DEV.QUEUE.2 get
 * </pre>
 *
 * Not here: TLS, and a login with a name; docs/guides/connect-from-your-language.md has the lines for both.
 */
public final class Client {
    /** Milliseconds for any answer. */
    private static final long PATIENCE = 30_000;

    private Client() {}

    public static void main(String[] words) {
        var factory = new JmsConnectionFactory(words[0]);
        try (JMSContext context = factory.createContext(JMSContext.SESSION_TRANSACTED)) {
            Queue queue = context.createQueue(words[1]);
            switch (words[2]) {
                case "put" -> context.createProducer()
                        // The default of JMS, spelled out: the message survives a restart.
                        .setDeliveryMode(DeliveryMode.PERSISTENT)
                        .send(queue, words[3]);
                case "get" -> System.out.println(text(context, queue));
                case "move" -> context.createProducer().send(context.createQueue(words[3]), text(context, queue));
                default -> throw new IllegalArgumentException("put, get or move");
            }
            // All of it takes effect now, or nothing: without this line it is rolled back.
            context.commit();
        }
    }

    private static String text(JMSContext context, Queue queue) {
        JMSConsumer consumer = context.createConsumer(queue);
        Message message = consumer.receive(PATIENCE);
        try {
            return message.getBody(String.class);
        } catch (jakarta.jms.JMSException failure) {
            throw new IllegalStateException(failure);
        }
    }
}
