import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * What Kafka's own message classes make of values: for each line of JSON with a message, a version
 * and a body one line, with the body as Kafka understood it and the bytes that it writes.
 */
public class JavaMessages {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String PACKAGE = "org.apache.kafka.common.message.";

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode vector = (ObjectNode) JSON.readTree(line);
            String name = vector.get("message").asText();
            short version = (short) vector.get("version").asInt();
            Class<?> converter = Class.forName(PACKAGE + name + "DataJsonConverter");
            Message message = (Message) converter
                .getMethod("read", JsonNode.class, short.class)
                .invoke(null, vector.get("body"), version);
            JsonNode understood = (JsonNode) converter
                .getMethod("write", message.getClass(), short.class)
                .invoke(null, message, version);
            vector.set("body", understood);
            vector.put("hex", HexFormat.of().formatHex(written(message, version)));
            System.out.println(JSON.writeValueAsString(vector));
        }
    }

    private static byte[] written(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.array();
    }
}
