// A Kafka Streams program, exactly once: how often each word was seen, in a store with a changelog.
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

public class JavaStreams {
    public static void main(String[] given) throws Exception {
        Properties made = new Properties();
        made.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, given[0]);
        made.put(StreamsConfig.APPLICATION_ID_CONFIG, given[1]);
        made.put(StreamsConfig.STATE_DIR_CONFIG, given[4]);
        made.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        made.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 3);
        made.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        made.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // every count is written
        made.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        made.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 6_000);
        made.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 300);
        StreamsBuilder builder = new StreamsBuilder();
        var store = Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
            .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long());
        builder.stream(given[2], Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, word) -> word, // through a topic of its own: the key changes
                Grouped.with(Serdes.String(), Serdes.String()))
            .count(store)
            .toStream()
            .mapValues((word, count) -> word + " " + count)
            .to(given[3], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams running = new KafkaStreams(builder.build(), made);
        running.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        running.setStateListener((now, before) -> System.out.println("\"" + now + "\""));
        running.start();
        while (System.in.read() >= 0) { }
        running.close(Duration.ofSeconds(30));
    }
}
