import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;

/** Prints every option of producer, consumer and admin as the kafka-clients on the class path declare them (0.8.2 or later). */
public class ConfigDump {
    public static void main(String[] arguments) throws Exception {
        for (String name : new String[] {"producer.ProducerConfig", "consumer.ConsumerConfig", "admin.AdminClientConfig"}) {
            Class<?> type;
            try {
                type = Class.forName("org.apache.kafka.clients." + name);
            } catch (ClassNotFoundException missing) {
                continue; // no admin client before 0.11
            }
            for (Map.Entry<String, Object> entry : new TreeMap<>(keys(definition(type))).entrySet())
                print(name.substring(0, name.indexOf('.')), entry.getKey(), facts(entry.getValue()));
        }
    }

    private static Object definition(Class<?> type) throws IllegalAccessException {
        for (Field field : type.getDeclaredFields())
            if (Modifier.isStatic(field.getModifiers()) && field.getType() == ConfigDef.class) return open(field).get(null);
        throw new IllegalStateException("no ConfigDef in " + type);
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> keys(Object definition) throws IllegalAccessException {
        for (Field field : ConfigDef.class.getDeclaredFields())
            if (Map.class.isAssignableFrom(field.getType()) && field.getName().toLowerCase().contains("config"))
                return (Map<String, Object>) open(field).get(definition);
        throw new IllegalStateException("no keys in ConfigDef");
    }

    private static Map<String, Object> facts(Object key) throws IllegalAccessException {
        Map<String, Object> facts = new HashMap<>();
        for (Field field : key.getClass().getDeclaredFields()) facts.put(field.getName(), open(field).get(key));
        return facts;
    }

    private static void print(String client, String name, Map<String, Object> facts) {
        System.out.println(String.join("\t", client, name, "" + facts.get("type"), "" + facts.get("defaultValue"),
            "" + facts.get("validator"), "" + facts.get("importance")));
    }

    private static Field open(Field field) {
        field.setAccessible(true);
        return field;
    }
}
