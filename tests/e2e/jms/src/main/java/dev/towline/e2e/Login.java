package dev.towline.e2e;

import jakarta.jms.Connection;
import jakarta.jms.InvalidClientIDException;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.Session;
import java.io.ByteArrayInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.apache.qpid.jms.JmsConnectionFactory;

/** SASL mechanisms and TLS. Files are PEM, made by the test. */
final class Login {
  private Login() {}

  static void into(Map<String, Main.Scenario> scenarios) {
    scenarios.put("login", Login::login);
    scenarios.put("login_refused", Login::refused);
    scenarios.put("client_id", Login::clientId);
    scenarios.put("tls", Login::tls);
    scenarios.put("tls_refused", Login::tlsRefused);
  }

  /** {@code URL MECHANISM USER PASSWORD}; the URL says amqp or amqps. */
  private static JmsConnectionFactory factory(Bed bed) {
    String mechanism = bed.argument(0, "");
    JmsConnectionFactory factory =
        new JmsConnectionFactory(bed.url + "?amqp.saslMechanisms=" + mechanism);
    factory.setUsername(bed.argument(1, null));
    factory.setPassword(bed.argument(2, null));
    return factory;
  }

  private static void use(Bed bed, JmsConnectionFactory factory) throws JMSException {
    Session session = bed.started(factory).createSession(false, Session.AUTO_ACKNOWLEDGE);
    bed.put(session, "LOGIN", "in");
    Bed.equal("in", Bed.text(Bed.consumer(session, "LOGIN")), "text");
  }

  private static void login(Bed bed) throws Exception {
    use(bed, factory(bed));
  }

  private static JmsConnectionFactory named(Bed bed, String clientId) {
    JmsConnectionFactory factory = new JmsConnectionFactory(bed.url);
    factory.setClientID(clientId);
    return factory;
  }

  /** A client id is used by one open connection at a time. */
  private static void clientId(Bed bed) throws Exception {
    Connection first = bed.started(named(bed, "billing"));
    Bed.fails(InvalidClientIDException.class, () -> bed.started(named(bed, "billing")));
    bed.started(named(bed, "shipping"));
    bed.connect();
    first.close();
    use(bed, named(bed, "billing"));
    Connection late = new JmsConnectionFactory(bed.url).createConnection();
    try (late) {
      Bed.fails(InvalidClientIDException.class, () -> late.setClientID("shipping"));
    }
  }

  private static void refused(Bed bed) throws Exception {
    JMSSecurityException failure =
        Bed.fails(JMSSecurityException.class, () -> bed.started(factory(bed)));
    bed.say("refused " + failure.getMessage());
  }

  /** {@code URL MECHANISM USER PASSWORD AUTHORITY [CERTIFICATE KEY]}; "-" for no user. */
  private static JmsConnectionFactory secured(Bed bed) throws Exception {
    JmsConnectionFactory factory = factory(bed);
    if ("-".equals(bed.argument(1, "-"))) {
      factory.setUsername(null);
      factory.setPassword(null);
    }
    factory.setSslContext(context(bed.argument(3, ""), bed.argument(4, null), bed.argument(5, null)));
    return factory;
  }

  private static void tls(Bed bed) throws Exception {
    JmsConnectionFactory factory = secured(bed);
    Session session = bed.started(factory).createSession(false, Session.AUTO_ACKNOWLEDGE);
    bed.put(session, "SECURED", "in");
    Bed.equal("in", Bed.text(Bed.consumer(session, "SECURED")), "text");
  }

  private static void tlsRefused(Bed bed) throws Exception {
    JMSException failure = Bed.fails(JMSException.class, () -> bed.started(secured(bed)));
    bed.say("refused " + failure.getMessage());
  }

  private static SSLContext context(String authority, String certificate, String key)
      throws Exception {
    KeyStore trusted = KeyStore.getInstance("PKCS12");
    trusted.load(null, null);
    trusted.setCertificateEntry("authority", certificate(authority));
    TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
    trust.init(trusted);
    KeyManagerFactory keys = KeyManagerFactory.getInstance("PKIX");
    KeyStore own = KeyStore.getInstance("PKCS12");
    own.load(null, null);
    if (certificate != null) {
      Certificate[] chain = {certificate(certificate)};
      own.setKeyEntry("own", privateKey(key), new char[0], chain);
    }
    keys.init(own, new char[0]);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
    return context;
  }

  private static Certificate certificate(String path) throws Exception {
    byte[] pem = Files.readAllBytes(Path.of(path));
    return CertificateFactory.getInstance("X.509").generateCertificate(new ByteArrayInputStream(pem));
  }

  private static PrivateKey privateKey(String path) throws Exception {
    List<String> lines = Files.readAllLines(Path.of(path));
    String base64 = String.join("", lines.subList(1, lines.size() - 1));
    byte[] bytes = Base64.getDecoder().decode(base64);
    return KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(bytes));
  }
}
