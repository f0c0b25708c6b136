package dev.towline.lab;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * JMS local transactions against any AMQP 1.0 broker: put B and commit, get B and commit.
 *
 * <p>One warm JVM measures every batch size, because a JMS client's first seconds are bound by its
 * compiler. Each thread has a connection, a session and a queue of its own, so that what it gets is
 * what it put: it checks the order of every message, and fails on the first one that does not fit.
 *
 * <p>Usage: {@code JmsTransactions [--url amqp://127.0.0.1:5672] [--threads 1] [--batches 1,10,100]
 * [--size 2048] [--seconds 5] [--rounds 3] [--warmup 10] [--server-pid PID] [--queue-prefix jmstx]}.
 * Prints a table on standard error and one JSON object on standard output.
 */
public final class JmsTransactions {
    private static final long RECEIVE_TIMEOUT_MS = 15_000;

    private final Options options;

    private JmsTransactions(Options options) {
        this.options = options;
    }

    /** Runs the benchmark; ends with status 1 when a message is missing or out of order. */
    public static void main(String[] args) throws Exception {
        new JmsTransactions(Options.parse(args)).run();
    }

    private void run() throws Exception {
        List<Client> clients = new ArrayList<>();
        ExecutorService pool = Executors.newFixedThreadPool(options.threads);
        try {
            for (int i = 0; i < options.threads; i++) {
                clients.add(new Client(options, i));
            }
            long warmUntil = System.nanoTime() + options.warmupSeconds * 1_000_000_000L;
            while (System.nanoTime() < warmUntil) {
                for (int batch : options.batches) {
                    round(pool, clients, batch, Math.min(1.0, options.warmupSeconds));
                }
            }
            List<String> rows = new ArrayList<>();
            for (int batch : options.batches) {
                List<Measure> rounds = new ArrayList<>();
                for (int i = 0; i < options.rounds; i++) {
                    rounds.add(round(pool, clients, batch, options.seconds));
                }
                rows.add(row(batch, rounds));
            }
            System.out.println(String.format(Locale.ROOT,
                    "{\"url\":\"%s\",\"threads\":%d,\"size\":%d,\"rows\":[%s]}",
                    options.url, options.threads, options.size, String.join(",", rows)));
        } finally {
            pool.shutdownNow();
            for (Client client : clients) {
                client.close();
            }
        }
    }

    private Measure round(ExecutorService pool, List<Client> clients, int batch, double seconds)
            throws Exception {
        long cpuBefore = ServerCpu.micros(options.serverPid);
        long start = System.nanoTime();
        long until = start + (long) (seconds * 1e9);
        List<Future<Long>> running = new ArrayList<>();
        for (Client client : clients) {
            Callable<Long> loop = () -> client.loop(batch, until);
            running.add(pool.submit(loop));
        }
        long messages = 0;
        for (Future<Long> one : running) {
            messages += one.get();
        }
        double elapsed = (System.nanoTime() - start) / 1e9;
        long cpu = ServerCpu.micros(options.serverPid) - cpuBefore;
        return new Measure(messages / elapsed, messages == 0 ? 0 : (double) cpu / messages);
    }

    private String row(int batch, List<Measure> rounds) {
        double[] rates = rounds.stream().mapToDouble(Measure::rate).sorted().toArray();
        double[] costs = rounds.stream().mapToDouble(Measure::cpuMicros).sorted().toArray();
        double median = rates[rates.length / 2];
        double best = rates[rates.length - 1];
        double cpu = costs[costs.length / 2];
        System.err.printf(Locale.ROOT,
                "%4d per commit  %8.0f messages/s median  %8.0f best  %7.1f us server CPU per message%n",
                batch, median, best, cpu);
        return String.format(Locale.ROOT,
                "{\"batch\":%d,\"messages_per_s_median\":%.1f,\"messages_per_s_best\":%.1f,"
                        + "\"server_cpu_us_per_message\":%.2f}",
                batch, median, best, cpu);
    }

    private record Measure(double rate, double cpuMicros) {}

    /** One connection, session, queue, producer and consumer. */
    private static final class Client implements AutoCloseable {
        private final Connection connection;
        private final Session session;
        private final MessageProducer producer;
        private final MessageConsumer consumer;
        private final byte[] body;
        private long sequence;

        Client(Options options, int index) throws JMSException {
            connection = new JmsConnectionFactory(options.url).createConnection();
            connection.start();
            session = connection.createSession(true, Session.SESSION_TRANSACTED);
            Queue queue = session.createQueue(options.queuePrefix + index);
            producer = session.createProducer(queue);
            producer.setDeliveryMode(DeliveryMode.PERSISTENT);
            consumer = session.createConsumer(queue);
            body = new byte[options.size];
            new Random(index).nextBytes(body);
            drain();
        }

        /** What an earlier run left would not fit the sequence. */
        private void drain() throws JMSException {
            int left = 0;
            while (consumer.receive(300) != null) {
                left++;
                if (left % 100 == 0) {
                    session.commit();
                }
            }
            session.commit();
        }

        long loop(int batch, long until) throws JMSException {
            long messages = 0;
            while (System.nanoTime() < until) {
                long first = sequence;
                for (int i = 0; i < batch; i++) {
                    BytesMessage message = session.createBytesMessage();
                    message.writeLong(sequence++);
                    message.writeBytes(body, 0, Math.max(0, body.length - Long.BYTES));
                    producer.send(message);
                }
                session.commit();
                for (int i = 0; i < batch; i++) {
                    check(consumer.receive(RECEIVE_TIMEOUT_MS), first + i);
                }
                session.commit();
                messages += batch;
            }
            return messages;
        }

        private static void check(Message message, long expected) throws JMSException {
            if (message == null) {
                throw new IllegalStateException("message " + expected + " did not come");
            }
            long got = ((BytesMessage) message).readLong();
            if (got != expected) {
                throw new IllegalStateException("expected message " + expected + ", got " + got);
            }
        }

        @Override
        public void close() throws JMSException {
            connection.close();
        }
    }

    private static final class Options {
        private String url = "amqp://127.0.0.1:5672";
        private int threads = 1;
        private int[] batches = {1, 10, 100};
        private int size = 2048;
        private double seconds = 5;
        private int rounds = 3;
        private int warmupSeconds = 10;
        private long serverPid;
        private String queuePrefix = "jmstx";

        static Options parse(String[] args) {
            Options options = new Options();
            for (int i = 0; i + 1 < args.length; i += 2) {
                options.set(args[i], args[i + 1]);
            }
            if (args.length % 2 != 0) {
                throw new IllegalArgumentException("no value for " + args[args.length - 1]);
            }
            return options;
        }

        private void set(String name, String value) {
            switch (name) {
                case "--url" -> url = value;
                case "--threads" -> threads = Integer.parseInt(value);
                case "--batches" ->
                    batches = Arrays.stream(value.split(",")).mapToInt(Integer::parseInt).toArray();
                case "--size" -> size = Math.max(Long.BYTES, Integer.parseInt(value));
                case "--seconds" -> seconds = Double.parseDouble(value);
                case "--rounds" -> rounds = Math.max(1, Integer.parseInt(value));
                case "--warmup" -> warmupSeconds = Integer.parseInt(value);
                case "--server-pid" -> serverPid = Long.parseLong(value);
                case "--queue-prefix" -> queuePrefix = value;
                default -> throw new IllegalArgumentException("unknown option " + name);
            }
        }
    }
}
