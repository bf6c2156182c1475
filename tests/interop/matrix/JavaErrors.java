import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Each error code of Kafka on a line: number, name, and whether the same request may succeed. */
public class JavaErrors {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            boolean isRetriable = error.exception() instanceof RetriableException;
            System.out.println(error.code() + " " + error.name() + " " + isRetriable);
        }
    }
}
