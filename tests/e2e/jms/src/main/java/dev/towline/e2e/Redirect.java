package dev.towline.e2e;

import jakarta.jms.JMSException;
import jakarta.jms.Session;
import java.util.Map;
import org.apache.qpid.jms.JmsConnection;
import org.apache.qpid.jms.JmsConnectionExtensions;
import org.apache.qpid.jms.JmsConnectionFactory;

/** A group of instances whose first one in the list is a replica. */
final class Redirect {
  private Redirect() {}

  static void into(Map<String, Main.Scenario> scenarios) {
    scenarios.put("follows_redirect", Redirect::follows);
    scenarios.put("is_relayed", Redirect::isRelayed);
  }

  /** {@code URLS HOST:PORT}: ends at this instance, and works there. */
  private static void follows(Bed bed) throws Exception {
    JmsConnectionFactory factory = new JmsConnectionFactory("failover:(" + bed.url + ")");
    factory.setExtension(
        JmsConnectionExtensions.AMQP_OPEN_PROPERTIES.toString(),
        (connection, uri) -> Map.of("towline:redirect", true));
    isServedAt(bed, factory);
  }

  private static void isRelayed(Bed bed) throws Exception {
    isServedAt(bed, new JmsConnectionFactory("failover:(" + bed.url + ")"));
  }

  private static void isServedAt(Bed bed, JmsConnectionFactory factory) throws JMSException {
    JmsConnection connection = (JmsConnection) bed.started(factory);
    Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    bed.put(session, "REDIRECTED", "in");
    Bed.equal("in", Bed.text(Bed.consumer(session, "REDIRECTED")), "text");
    Bed.equal(bed.argument(0, ""), connection.getConnectedURI().getAuthority(), "served at");
  }
}
