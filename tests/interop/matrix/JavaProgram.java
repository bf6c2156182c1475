// The Java client from 2.8 on; steps.py says what every program of the matrix does and prints.
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class JavaProgram {
    static final int PARTITIONS = 3, FIRST = 30, MORE = 3;
    /** When the first record was written: not so long ago that retention would delete it. */
    static final long T0 = System.currentTimeMillis() - 3_600_000, PATIENCE_MS = 180_000;
    static final String RETENTION = "86400000";
    static String bootstrap, topic, group;
    static Admin admin;
    static final List<String> outcomes = new ArrayList<>();

    public static void main(String[] given) {
        bootstrap = given[0];
        topic = given[1];
        group = given[2];
        admin = Admin.create(settings());
        step("create", () -> create());
        step("groups before any", () -> groups());
        step("produce", () -> produce(0, FIRST, "none"));
        step("read", () -> read(FIRST * PARTITIONS));
        step("committed", () -> committed());
        step("produce more", () -> produce(FIRST, MORE, "gzip"));
        step("read again", () -> read(MORE * PARTITIONS));
        step("committed again", () -> committed());
        step("offsets", () -> offsets());
        step("offset by time", () -> byTime());
        step("groups", () -> groups());
        step("offsets of the group", () -> offsetsOfGroup());
        step("alter", () -> alter());
        step("delete the group", () -> deleteGroup());
        step("delete", () -> delete());
        admin.close();
        System.out.println("{" + String.join(", ", outcomes) + "}");
    }

    static void step(String name, Callable<Object> ask) {
        String outcome;
        try {
            outcome = ask.call().toString();
        } catch (Exception failure) {
            outcome = quoted(failure.toString());
        }
        outcomes.add(quoted(name) + ": " + outcome);
    }

    static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "'").replace("\n", " ") + "\"";
    }

    static Properties settings() {
        Properties made = new Properties();
        made.put("bootstrap.servers", bootstrap);
        return made;
    }

    static Object create() throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
        until(() -> admin.listTopics().names().get().contains(topic) ? true : null);
        try (var consumer = member()) { // the admin client's way to ask this has changed with 4.0
            return until(() -> { // it may ask a node that hears of the topic a moment later
                var known = consumer.partitionsFor(topic);
                return known == null || known.isEmpty() ? null : known.size();
            });
        }
    }

    static Object produce(int first, int count, String codec) throws Exception {
        Properties made = settings();
        made.put("compression.type", codec);
        made.put("enable.idempotence", "true");
        List<Future<?>> sent = new ArrayList<>();
        try (var producer = new KafkaProducer<>(made, new StringSerializer(), new StringSerializer())) {
            for (int number = first; number < first + count; number++)
                for (int where = 0; where < PARTITIONS; where++)
                    sent.add(producer.send(new ProducerRecord<>(
                        topic, where, T0 + number * 1000L, "key " + number, where + "/" + number)));
            for (Future<?> each : sent) each.get();
        }
        return sent.size();
    }

    static KafkaConsumer<String, String> member() {
        Properties made = settings();
        made.put("group.id", group);
        made.put("auto.offset.reset", "earliest");
        made.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(made, new StringDeserializer(), new StringDeserializer());
    }

    static Object read(int count) throws Exception {
        Set<String> values = new HashSet<>();
        try (var consumer = member()) {
            consumer.subscribe(List.of(topic));
            until(() -> {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(500)))
                    values.add(each.value());
                return values.size() >= count ? true : null;
            });
            consumer.commitSync();
        }
        return values.size();
    }

    static Set<TopicPartition> places() {
        Set<TopicPartition> found = new HashSet<>();
        for (int number = 0; number < PARTITIONS; number++) found.add(new TopicPartition(topic, number));
        return found;
    }

    static String shown(Map<Integer, ?> found) {
        List<String> rows = new ArrayList<>();
        new TreeMap<>(found).forEach((number, value) -> rows.add("\"" + number + "\": " + value));
        return "{" + String.join(", ", rows) + "}";
    }

    static Object committed() {
        Map<Integer, Long> found = new HashMap<>();
        try (var consumer = member()) {
            consumer.committed(places()).forEach((at, offset) -> found.put(at.partition(), offset.offset()));
        }
        return shown(found);
    }

    static Object offsets() throws Exception {
        Map<TopicPartition, OffsetSpec> starts = new HashMap<>(), ends = new HashMap<>();
        for (TopicPartition at : places()) {
            starts.put(at, OffsetSpec.earliest());
            ends.put(at, OffsetSpec.latest());
        }
        var first = admin.listOffsets(starts).all().get();
        var end = admin.listOffsets(ends).all().get();
        Map<Integer, List<Long>> found = new HashMap<>();
        for (TopicPartition at : places())
            found.put(at.partition(), List.of(first.get(at).offset(), end.get(at).offset()));
        return shown(found);
    }

    static Object byTime() {
        TopicPartition at = new TopicPartition(topic, 0);
        try (var consumer = member()) {
            return consumer.offsetsForTimes(Map.of(at, T0 + FIRST * 1000L)).get(at).offset();
        }
    }

    static Object groups() throws Exception {
        return admin.listConsumerGroups().all().get().stream().anyMatch(each -> each.groupId().equals(group));
    }

    static Object offsetsOfGroup() throws Exception {
        Map<Integer, Long> found = new HashMap<>();
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
            .forEach((at, offset) -> found.put(at.partition(), offset.offset()));
        return shown(found);
    }

    static Object alter() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Collection<AlterConfigOp> wanted =
            List.of(new AlterConfigOp(new ConfigEntry("retention.ms", RETENTION), AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(resource, wanted)).all().get();
        var found = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        return quoted(found.get("retention.ms").value());
    }

    static Object deleteGroup() throws Exception {
        admin.deleteConsumerGroups(List.of(group)).all().get();
        return until(() -> groups().equals(false) ? true : null);
    }

    static Object delete() throws Exception {
        admin.deleteTopics(List.of(topic)).all().get();
        return until(() -> admin.listTopics().names().get().contains(topic) ? null : true);
    }

    static Object until(Callable<Object> ask) throws Exception {
        for (long deadline = System.currentTimeMillis() + PATIENCE_MS; ; Thread.sleep(50)) {
            Object answer = ask.call();
            if (answer != null) return answer;
            if (System.currentTimeMillis() > deadline) throw new RuntimeException("not within a minute");
        }
    }
}
