// A copier around the Java client; tests/harness/copiers.py says what it is told and answers.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class JavaCopier {
    static final Duration POLL = Duration.ofMillis(100);
    static final Map<String, String> BALANCERS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "cooperative", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    static String bootstrap, source, target, group, id, balancer;
    static KafkaProducer<byte[], byte[]> producer;
    static KafkaConsumer<byte[], byte[]> consumer;
    static final Map<TopicPartition, OffsetAndMetadata> opened = new HashMap<>();

    public static void main(String[] given) throws Exception {
        bootstrap = given[1];
        source = given[2];
        target = given[3];
        group = given[4];
        id = given[5];
        balancer = given[6];
        producer = producer();
        producer.initTransactions();
        if (given[0].equals("fence")) {
            fence();
            return;
        }
        consumer = consumer();
        consumer.subscribe(List.of(source));
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) step(order);
        consumer.close();
        producer.close(Duration.ZERO);
    }

    static KafkaProducer<byte[], byte[]> producer() {
        Properties made = new Properties();
        made.put("bootstrap.servers", bootstrap);
        made.put("transactional.id", id);
        made.put("transaction.timeout.ms", "30000");
        return new KafkaProducer<>(made, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer() {
        Properties made = new Properties();
        made.put("bootstrap.servers", bootstrap);
        made.put("group.id", group);
        made.put("auto.offset.reset", "earliest");
        made.put("enable.auto.commit", "false");
        made.put("isolation.level", "read_committed");
        made.put("max.poll.records", "40");
        made.put("session.timeout.ms", "30000");
        made.put("heartbeat.interval.ms", "300");
        made.put("partition.assignment.strategy", BALANCERS.get(balancer));
        return new KafkaConsumer<>(made, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Aborts a transaction of its own, once it has the id. */
    static void fence() throws Exception {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(target, 0, null, "fence".getBytes())).get();
        producer.abortTransaction();
        producer.close();
    }

    static void step(String order) {
        int read = 0;
        boolean committed = false;
        String error = "";
        try {
            if (!order.equals("end")) read = begin();
            if (!opened.isEmpty() && !order.equals("open")) {
                committed = end(order.equals("abort"));
                opened.clear();
            }
        } catch (Exception failure) {
            error = failure.toString();
        }
        List<String> assigned = new ArrayList<>();
        for (TopicPartition each : consumer.assignment()) assigned.add(String.valueOf(each.partition()));
        System.out.println("{\"assigned\": [" + String.join(", ", assigned) + "], \"read\": " + read
            + ", \"committed\": " + committed + ", \"id\": \"" + id + "\", \"error\": \""
            + error.replace("\\", "\\\\").replace("\"", "'").replace("\n", " ") + "\"}");
        System.out.flush();
    }

    /** A transaction with what came within a moment; with nothing there is none. */
    static int begin() throws Exception {
        List<Future<?>> sent = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> each : consumer.poll(POLL)) {
            if (sent.isEmpty()) producer.beginTransaction();
            opened.put(new TopicPartition(source, each.partition()), new OffsetAndMetadata(each.offset() + 1));
            sent.add(producer.send(new ProducerRecord<>(target, each.partition(), each.key(), each.value())));
        }
        for (Future<?> each : sent) each.get();
        return sent.size();
    }

    static boolean end(boolean isToAbort) {
        if (!isToAbort) {
            try {
                producer.sendOffsetsToTransaction(opened, consumer.groupMetadata());
                producer.commitTransaction();
                return true;
            } catch (CommitFailedException rebalanced) {
                // The partitions have another owner: what was copied of them must not count.
            }
        }
        producer.abortTransaction();
        var committed = consumer.committed(consumer.assignment());
        for (TopicPartition each : consumer.assignment()) {
            OffsetAndMetadata at = committed.get(each);
            consumer.seek(each, at == null ? 0 : at.offset());
        }
        return false;
    }
}
