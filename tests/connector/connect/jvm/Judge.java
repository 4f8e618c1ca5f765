import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.text.SimpleDateFormat;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TimeZone;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/** Answers questions about Kafka Connect's own classes: one JSON request per line in, one JSON answer per line out. */
public final class Judge {
    private static final JsonNodeFactory NODES = JsonNodeFactory.withExactBigDecimals(true);

    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        String line;
        while ((line = in.readLine()) != null) {
            ObjectNode answer = NODES.objectNode();
            JsonNode request = mapper.readTree(line);
            String[] phase = {"configure"};
            try {
                answer.set("ok", answer(request, phase));
            } catch (Throwable problem) {
                answer.put("error", problem.getClass().getSimpleName());
                answer.put("message", String.valueOf(problem.getMessage()));
                answer.put("phase", phase[0]);
            }
            out.println(mapper.writeValueAsString(answer));
        }
    }

    private static JsonNode answer(JsonNode request, String[] phase) throws Exception {
        switch (request.get("op").asText()) {
            case "transform":
                return transform(request, phase);
            case "from": {
                Converter converter = converter(request);
                phase[0] = "apply";
                Schema schema = schema(request.get("schema"));
                return bytes(converter.fromConnectData("t", schema, value(schema, request.get("value"))));
            }
            case "to": {
                Converter converter = converter(request);
                phase[0] = "apply";
                return pair(converter.toConnectData("t", binary(request.get("bytes"))));
            }
            case "header-from": {
                HeaderConverter converter = headerConverter(request);
                phase[0] = "apply";
                Schema schema = schema(request.get("schema"));
                return bytes(converter.fromConnectHeader("t", "h", schema, value(schema, request.get("value"))));
            }
            case "header-to": {
                HeaderConverter converter = headerConverter(request);
                phase[0] = "apply";
                return pair(converter.toConnectHeader("t", "h", binary(request.get("bytes"))));
            }
            case "format": {
                SimpleDateFormat format = new SimpleDateFormat(request.get("pattern").asText());
                format.setTimeZone(TimeZone.getTimeZone("UTC"));
                phase[0] = "apply";
                return NODES.textNode(format.format(new java.util.Date(request.get("millis").asLong())));
            }
            case "parse": {
                SimpleDateFormat format = new SimpleDateFormat(request.get("pattern").asText());
                format.setTimeZone(TimeZone.getTimeZone("UTC"));
                phase[0] = "apply";
                return NODES.numberNode(format.parse(request.get("text").asText()).getTime());
            }
            default:
                throw new IllegalArgumentException(request.get("op").asText());
        }
    }

    private static Map<String, String> settings(JsonNode node) {
        Map<String, String> found = new HashMap<>();
        if (node != null) {
            for (Map.Entry<String, JsonNode> entry : node.properties()) {
                found.put(entry.getKey(), entry.getValue().asText());
            }
        }
        return found;
    }

    private static Object made(JsonNode name) throws Exception {
        return Class.forName(name.asText()).getDeclaredConstructor().newInstance();
    }

    private static Converter converter(JsonNode request) throws Exception {
        Converter converter = (Converter) made(request.get("class"));
        converter.configure(settings(request.get("config")), request.path("key").asBoolean());
        return converter;
    }

    private static HeaderConverter headerConverter(JsonNode request) throws Exception {
        HeaderConverter converter = (HeaderConverter) made(request.get("class"));
        Map<String, String> config = settings(request.get("config"));
        config.put("converter.type", "header");
        converter.configure(config);
        return converter;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static JsonNode transform(JsonNode request, String[] phase) throws Exception {
        ConnectRecord record = record(request.get("record"), request.get("kind").asText());
        List<Object[]> steps = new ArrayList<>();
        for (JsonNode step : request.get("steps")) {
            Transformation transformation = (Transformation) made(step.get("class"));
            transformation.config().parse(settings(step.get("config")));
            transformation.configure(settings(step.get("config")));
            Predicate predicate = null;
            if (step.hasNonNull("predicate")) {
                predicate = (Predicate) made(step.get("predicate").get("class"));
                predicate.configure(settings(step.get("predicate").get("config")));
            }
            steps.add(new Object[] {transformation, predicate, step.path("negate").asBoolean()});
        }
        phase[0] = "apply";
        for (Object[] step : steps) {
            if (record == null) {
                break;
            }
            if (step[1] == null || ((Predicate) step[1]).test(record) != (Boolean) step[2]) {
                record = ((Transformation) step[0]).apply(record);
            }
        }
        if (record == null) {
            return NODES.nullNode();
        }
        ObjectNode node = NODES.objectNode();
        node.put("topic", record.topic());
        node.set("key", pair(new SchemaAndValue(record.keySchema(), record.key())));
        node.set("value", pair(new SchemaAndValue(record.valueSchema(), record.value())));
        ArrayNode headers = node.putArray("headers");
        for (Object each : record.headers()) {
            Header header = (Header) each;
            headers.add(NODES.arrayNode().add(header.key()).add(pair(new SchemaAndValue(header.schema(), header.value()))));
        }
        if (request.path("json").asBoolean()) {  // the bytes that JsonConverter makes of what came out
            Converter json = (Converter) Class.forName("org.apache.kafka.connect.json.JsonConverter").getDeclaredConstructor().newInstance();
            json.configure(Map.of("schemas.enable", request.get("json_schemas").asText()), true);
            node.set("key_bytes", bytes(json.fromConnectData("t", record.keySchema(), record.key())));
            node.set("value_bytes", bytes(json.fromConnectData("t", record.valueSchema(), record.value())));
        }
        return node;
    }

    private static ConnectRecord<?> record(JsonNode node, String kind) {
        Schema keySchema = schema(node.get("key_schema"));
        Schema valueSchema = schema(node.get("value_schema"));
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode header : node.get("headers")) {
            Schema schema = schema(header.get(1));
            headers.add(header.get(0).asText(), value(schema, header.get(2)), schema);
        }
        Object key = value(keySchema, node.get("key"));
        Object data = value(valueSchema, node.get("value"));
        Long timestamp = node.get("timestamp").isNull() ? null : node.get("timestamp").asLong();
        String topic = node.get("topic").asText();
        if (kind.equals("source")) {
            return new SourceRecord(Map.of(), Map.of(), topic, null, keySchema, key, valueSchema, data, timestamp, headers);
        }
        return new SinkRecord(topic, node.get("partition").asInt(), keySchema, key, valueSchema, data,
            node.get("offset").asLong(), timestamp, TimestampType.CREATE_TIME, headers);
    }

    private static Schema schema(JsonNode node) {
        if (node == null || node.isNull()) {
            return null;
        }
        Schema.Type type = Schema.Type.valueOf(node.get("type").asText().toUpperCase(java.util.Locale.ROOT));
        SchemaBuilder builder;
        switch (type) {
            case STRUCT:
                builder = SchemaBuilder.struct();
                for (JsonNode field : node.get("fields")) {
                    builder.field(field.get(0).asText(), schema(field.get(1)));
                }
                break;
            case ARRAY:
                builder = SchemaBuilder.array(schema(node.get("values")));
                break;
            case MAP:
                builder = SchemaBuilder.map(schema(node.get("keys")), schema(node.get("values")));
                break;
            default:
                builder = SchemaBuilder.type(type);
        }
        if (node.path("optional").asBoolean()) {
            builder.optional();
        }
        if (node.hasNonNull("name")) {
            builder.name(node.get("name").asText());
        }
        if (node.hasNonNull("version")) {
            builder.version(node.get("version").asInt());
        }
        if (node.hasNonNull("doc")) {
            builder.doc(node.get("doc").asText());
        }
        if (node.hasNonNull("parameters")) {
            for (Map.Entry<String, JsonNode> entry : node.get("parameters").properties()) {
                builder.parameter(entry.getKey(), entry.getValue().asText());
            }
        }
        if (node.hasNonNull("default")) {
            builder.defaultValue(value(builder.build(), node.get("default")));
        }
        return builder.build();
    }

    private static Object value(Schema schema, JsonNode node) {
        if (node == null || node.isNull()) {
            return null;
        }
        Map.Entry<String, JsonNode> entry = node.properties().iterator().next();
        JsonNode data = entry.getValue();
        switch (entry.getKey()) {
            case "boolean":
                return data.asBoolean();
            case "int8":
                return (byte) data.asInt();
            case "int16":
                return (short) data.asInt();
            case "int32":
                return data.asInt();
            case "int64":
                return Long.parseLong(data.asText());
            case "float32":
                return Float.parseFloat(data.asText());
            case "float64":
                return Double.parseDouble(data.asText());
            case "string":
                return data.asText();
            case "bytes":
                return binary(data);
            case "decimal":
                return new BigDecimal(data.asText());
            case "date":
                return new java.util.Date(data.asLong());
            case "array": {
                List<Object> list = new ArrayList<>();
                for (JsonNode item : data) {
                    list.add(value(schema == null ? null : schema.valueSchema(), item));
                }
                return list;
            }
            case "map": {
                Map<Object, Object> map = new LinkedHashMap<>();
                for (JsonNode pair : data) {
                    map.put(value(schema == null ? null : schema.keySchema(), pair.get(0)),
                        value(schema == null ? null : schema.valueSchema(), pair.get(1)));
                }
                return map;
            }
            case "struct": {
                Struct struct = new Struct(schema);
                for (JsonNode pair : data) {
                    if (!pair.get(1).isNull()) {
                        String name = pair.get(0).asText();
                        struct.put(name, value(schema.field(name).schema(), pair.get(1)));
                    }
                }
                return struct;
            }
            default:
                throw new IllegalArgumentException(entry.getKey());
        }
    }

    private static ArrayNode pair(SchemaAndValue both) {
        if (both == null) {
            return NODES.arrayNode().add("none");
        }
        return NODES.arrayNode().add(shown(both.schema())).add(shown(both.value()));
    }

    private static JsonNode shown(Schema schema) {
        if (schema == null) {
            return NODES.nullNode();
        }
        ObjectNode node = NODES.objectNode();
        node.put("type", schema.type().getName());
        node.put("optional", schema.isOptional());
        if (schema.name() != null) {
            node.put("name", schema.name());
        }
        if (schema.version() != null) {
            node.put("version", schema.version());
        }
        if (schema.doc() != null) {
            node.put("doc", schema.doc());
        }
        if (schema.defaultValue() != null) {
            node.set("default", shown(schema.defaultValue()));
        }
        if (schema.parameters() != null && !schema.parameters().isEmpty()) {
            ObjectNode parameters = node.putObject("parameters");
            schema.parameters().forEach(parameters::put);
        }
        if (schema.type() == Schema.Type.STRUCT) {
            ArrayNode fields = node.putArray("fields");
            for (Field field : schema.fields()) {
                fields.add(NODES.arrayNode().add(field.name()).add(shown(field.schema())));
            }
        }
        if (schema.type() == Schema.Type.MAP) {
            node.set("keys", shown(schema.keySchema()));
        }
        if (schema.type() == Schema.Type.MAP || schema.type() == Schema.Type.ARRAY) {
            node.set("values", shown(schema.valueSchema()));
        }
        return node;
    }

    private static JsonNode shown(Object value) {
        if (value == null) {
            return NODES.nullNode();
        }
        ObjectNode node = NODES.objectNode();
        if (value instanceof Boolean) {
            node.put("boolean", (Boolean) value);
        } else if (value instanceof Byte) {
            node.put("int8", (Byte) value);
        } else if (value instanceof Short) {
            node.put("int16", (Short) value);
        } else if (value instanceof Integer) {
            node.put("int32", (Integer) value);
        } else if (value instanceof Long) {
            node.put("int64", value.toString());
        } else if (value instanceof Float) {
            node.put("float32", value.toString());
        } else if (value instanceof Double) {
            node.put("float64", value.toString());
        } else if (value instanceof String) {
            node.put("string", (String) value);
        } else if (value instanceof byte[]) {
            node.set("bytes", bytes((byte[]) value));
        } else if (value instanceof ByteBuffer) {
            node.set("bytes", bytes(((ByteBuffer) value).array()));
        } else if (value instanceof BigDecimal || value instanceof BigInteger) {
            node.put("decimal", value.toString());
        } else if (value instanceof java.util.Date) {
            node.put("date", ((java.util.Date) value).getTime());
        } else if (value instanceof List) {
            ArrayNode list = node.putArray("array");
            ((List<?>) value).forEach(item -> list.add(shown(item)));
        } else if (value instanceof Map) {
            ArrayNode pairs = node.putArray("map");
            ((Map<?, ?>) value).forEach((k, v) -> pairs.add(NODES.arrayNode().add(shown(k)).add(shown(v))));
        } else if (value instanceof Struct) {
            Struct struct = (Struct) value;
            ArrayNode pairs = node.putArray("struct");
            for (Field field : struct.schema().fields()) {
                pairs.add(NODES.arrayNode().add(field.name()).add(shown(struct.getWithoutDefault(field.name()))));
            }
        } else {
            throw new IllegalArgumentException(value.getClass().getName());
        }
        return node;
    }

    private static byte[] binary(JsonNode node) {
        return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    private static JsonNode bytes(byte[] data) {
        return data == null ? NODES.nullNode() : NODES.textNode(Base64.getEncoder().encodeToString(data));
    }
}
