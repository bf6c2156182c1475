import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a group around Kafka's own client; tests/harness/protocol_members.py says what it
 * tells. Arguments: bootstrap, group, topic, protocol, instance, assignor, slow_s, max_poll_ms.
 */
public class JavaMember {
    static long slowMs;

    public static void main(String[] given) throws Exception {
        slowMs = (long) (Double.parseDouble(given[6]) * 1000);
        AtomicBoolean stop = new AtomicBoolean();
        Thread watching = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException gone) {
                // as good as the end
            }
            stop.set(true);
        });
        watching.setDaemon(true);
        watching.start();
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
            settings(given), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(given[2]), new Telling());
        tell("started", "");
        while (!stop.get()) {
            try {
                ConsumerRecords<byte[], byte[]> found = consumer.poll(Duration.ofMillis(100));
                if (found.isEmpty()) continue;
                List<String> read = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> one : found)
                    read.add("[" + one.partition() + ", " + one.offset() + "]");
                tell("read", ", \"records\": [" + String.join(", ", read) + "]");
                commit(consumer, found);
            } catch (KafkaException error) {
                String text = error.toString().replace("\\", "\\\\").replace("\"", "'");
                tell("error", ", \"text\": \"" + text.replace("\n", " ") + "\"");
            }
        }
        consumer.close();
        tell("closed", "");
    }

    /** Commits where what was read ends. */
    static void commit(
            KafkaConsumer<byte[], byte[]> consumer, ConsumerRecords<byte[], byte[]> found) {
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> one : found)
            ends.put(new TopicPartition(one.topic(), one.partition()),
                new OffsetAndMetadata(one.offset() + 1));
        List<String> told = new ArrayList<>();
        ends.forEach((place, end) ->
            told.add("[" + place.partition() + ", " + end.offset() + "]"));
        tell("committing", ", \"ends\": [" + String.join(", ", told) + "]");
        consumer.commitSync(ends);
        tell("committed", Telling.named(ends.keySet()));
    }

    static Properties settings(String[] given) {
        Properties made = new Properties();
        made.put("bootstrap.servers", given[0]);
        made.put("group.id", given[1]);
        made.put("group.protocol", given[3]);
        made.put("auto.offset.reset", "earliest");
        made.put("enable.auto.commit", "false");
        made.put("max.poll.records", "200");
        made.put("max.poll.interval.ms", given[7]);
        if (!given[4].isEmpty()) made.put("group.instance.id", given[4]);
        if (given[3].equals("consumer")) {
            if (!given[5].isEmpty()) made.put("group.remote.assignor", given[5]);
        } else {
            made.put("session.timeout.ms", "6000");
            made.put("heartbeat.interval.ms", "300");
            String name = given[5].isEmpty() ? "range" : given[5];
            made.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer."
                + (name.equals("range") ? "RangeAssignor" : "CooperativeStickyAssignor"));
        }
        return made;
    }

    static synchronized void tell(String event, String more) {
        Instant now = Instant.now(); // in microseconds: what happened before is told before
        System.out.printf(java.util.Locale.ROOT, "{\"event\": \"%s\", \"at\": %d.%06d%s}%n",
            event, now.getEpochSecond(), now.getNano() / 1000, more);
        System.out.flush();
    }

    static class Telling implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> places) {
            tell("assigned", named(places));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> places) {
            tell("revoking", "");
            try {
                Thread.sleep(slowMs);
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
            tell("revoked", named(places));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> places) {
            tell("lost", named(places));
        }

        static String named(Collection<TopicPartition> places) {
            List<String> numbers = new ArrayList<>();
            for (TopicPartition each : places) numbers.add(String.valueOf(each.partition()));
            return ", \"partitions\": [" + String.join(", ", numbers) + "]";
        }
    }
}
