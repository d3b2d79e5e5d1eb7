import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/**
 * Applies Kafka's own transforms and predicates to records. Each line of the input is a case, an object with
 * steps (a class and its settings) and records; each line of the output is the array of the records' outcomes.
 */
public final class TransformRecords {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonConverter WITH_SCHEMA = converter(true);
    private static final JsonConverter SCHEMALESS = converter(false);
    private static final SimpleHeaderConverter HEADERS = new SimpleHeaderConverter();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(JSON.writeValueAsString(outcomes(JSON.readTree(line))));
        }
    }

    private static JsonConverter converter(boolean schemas) {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", String.valueOf(schemas), "replace.null.with.default", "false"), false);
        return converter;
    }

    private static ArrayNode outcomes(JsonNode testCase) throws Exception {
        ArrayNode found = JSON.createArrayNode();
        List<Object> plugins = new ArrayList<>();
        try {
            for (JsonNode step : testCase.get("steps")) {
                plugins.add(configured(step));
            }
        } catch (Exception error) {
            return found.add(failure(error));
        }
        for (JsonNode record : testCase.get("records")) {
            try {
                found.add(outcome(plugins, sinkRecord(record)));
            } catch (Exception error) {
                found.add(failure(error));
            }
        }
        return found;
    }

    private static Object configured(JsonNode step) throws Exception {
        Map<String, String> settings = new HashMap<>();
        step.get("settings").fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
        Object plugin = Class.forName(step.get("class").asText()).getDeclaredConstructor().newInstance();
        if (plugin instanceof Transformation<?> transform) {
            transform.configure(settings);
        } else {
            ((Predicate<?>) plugin).configure(settings);
        }
        return plugin;
    }

    @SuppressWarnings("unchecked")
    private static JsonNode outcome(List<Object> plugins, SinkRecord record) {
        SinkRecord after = record;
        for (Object plugin : plugins) {
            if (plugin instanceof Predicate) {
                return JSON.getNodeFactory().booleanNode(((Predicate<SinkRecord>) plugin).test(after));
            }
            after = ((Transformation<SinkRecord>) plugin).apply(after);
            if (after == null) {
                return JSON.getNodeFactory().nullNode();
            }
        }
        ObjectNode found = JSON.createObjectNode();
        found.put("topic", after.topic());
        found.put("partition", after.kafkaPartition());
        found.put("timestamp", after.timestamp());
        found.set("key", side(after.keySchema(), after.key()));
        found.set("value", side(after.valueSchema(), after.value()));
        ArrayNode headers = found.putArray("headers");
        for (Header header : after.headers()) {
            byte[] bytes = HEADERS.fromConnectHeader("", header.key(), header.schema(), header.value());
            headers.addArray().add(header.key()).add(bytes == null ? null : new String(bytes, StandardCharsets.UTF_8));
        }
        return found;
    }

    private static JsonNode side(Schema schema, Object value) {
        byte[] bytes = (schema == null ? SCHEMALESS : WITH_SCHEMA).fromConnectData("", schema, value);
        try {
            JsonNode node = bytes == null ? JSON.nullNode() : JSON.readTree(bytes);
            return schema == null ? JSON.createObjectNode().<ObjectNode>set("payload", node) : node;
        } catch (java.io.IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static ObjectNode failure(Exception error) {
        return JSON.createObjectNode().put("exception", error.getClass().getName()).put("message", error.getMessage());
    }

    private static SinkRecord sinkRecord(JsonNode record) throws Exception {
        SchemaAndValue key = data(record.get("key"));
        SchemaAndValue value = data(record.get("value"));
        JsonNode timestamp = record.get("timestamp");
        SinkRecord found = new SinkRecord(
            record.get("topic").asText(),
            record.get("partition").asInt(),
            key.schema(),
            key.value(),
            value.schema(),
            value.value(),
            record.get("offset").asLong(),
            timestamp.isNull() ? null : timestamp.asLong(),
            TimestampType.CREATE_TIME
        );
        for (JsonNode header : record.get("headers")) {
            byte[] bytes = header.get(1).asText().getBytes(StandardCharsets.UTF_8);
            found.headers().add(header.get(0).asText(), HEADERS.toConnectHeader("", header.get(0).asText(), bytes));
        }
        return found;
    }

    private static SchemaAndValue data(JsonNode node) throws Exception {
        boolean hasSchema = node.has("schema");
        byte[] bytes = JSON.writeValueAsBytes(hasSchema ? node : node.get("payload"));
        return (hasSchema ? WITH_SCHEMA : SCHEMALESS).toConnectData("", bytes);
    }
}
