// The Java client from 2.8 on; scenarios.py says what every program of the matrix does and prints.
// Each scenario is five arguments: its name, its steps, topic, group and transactional id, and the
// name of its client.properties, which has the address too.
import java.io.FileInputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.SslAuthenticationException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class JavaSecured {
    static final int COUNT = 10, MORE = 5, PARTS = 6;
    static final long PATIENCE_MS = 120_000;
    static String topic, group, id, file;

    public static void main(String[] given) throws Exception {
        List<String> scenarios = new ArrayList<>();
        for (int at = 0; at < given.length; at += PARTS) {
            topic = given[at + 2];
            group = given[at + 3];
            id = given[at + 4];
            file = given[at + 5];
            List<String> outcomes = new ArrayList<>();
            for (String step : given[at + 1].split(",")) outcomes.add(quoted(step) + ": " + outcome(step));
            scenarios.add(quoted(given[at]) + ": {" + String.join(", ", outcomes) + "}");
        }
        System.out.println("{" + String.join(", ", scenarios) + "}");
    }

    static String outcome(String step) {
        try {
            switch (step) {
                case "produce": return String.valueOf(produce());
                case "read": return String.valueOf(read(COUNT));
                case "transaction": return String.valueOf(transact());
                default: return String.valueOf(read(MORE));
            }
        } catch (Exception failure) {
            return quoted(code(failure));
        }
    }

    static String code(Throwable failure) {
        for (Throwable cause = failure; cause != null; cause = cause.getCause())
            if (cause instanceof SslAuthenticationException) return "TLS"; // to Errors it is a setting
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            Errors found = Errors.forException(cause);
            if (found != Errors.UNKNOWN_SERVER_ERROR) return String.valueOf(found.code());
        }
        return failure.toString();
    }

    static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "'").replace("\n", " ") + "\"";
    }

    static Properties settings() throws Exception {
        Properties made = new Properties();
        try (FileInputStream read = new FileInputStream(file)) {
            made.load(read);
        }
        return made;
    }

    static KafkaProducer<String, String> producer(Properties made) {
        return new KafkaProducer<>(made, new StringSerializer(), new StringSerializer());
    }

    static int send(KafkaProducer<String, String> producer, int count, String what) throws Exception {
        List<Future<?>> sent = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            sent.add(producer.send(new ProducerRecord<>(topic, what + " " + number)));
            if (number == 0) sent.get(0).get(); // else each of them waits for what will not come
        }
        producer.flush();
        for (Future<?> each : sent) each.get();
        return sent.size();
    }

    static int produce() throws Exception {
        Properties made = settings();
        made.put("enable.idempotence", "false");
        try (var producer = producer(made)) {
            return send(producer, COUNT, "plain");
        }
    }

    static int transact() throws Exception {
        Properties made = settings();
        made.put("transactional.id", id);
        try (var producer = producer(made)) {
            producer.initTransactions();
            producer.beginTransaction();
            int count = send(producer, MORE, "transaction");
            producer.commitTransaction();
            return count;
        }
    }

    static int read(int count) throws Exception {
        Properties made = settings();
        made.put("group.id", group);
        made.put("auto.offset.reset", "earliest");
        made.put("enable.auto.commit", "false");
        made.put("isolation.level", "read_committed");
        Set<String> values = new HashSet<>();
        try (var consumer = new KafkaConsumer<>(made, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long ends = System.currentTimeMillis() + PATIENCE_MS;
            while (values.size() < count && System.currentTimeMillis() < ends)
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(500)))
                    values.add(each.value());
            consumer.commitSync();
        }
        return values.size();
    }
}
