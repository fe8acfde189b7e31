import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.protocol.ApiKeys;

/** Prints what one release's brokers offer to clients: APIs with their stable versions, features with their levels. */
public class ReleaseDump {
    private static final String COMMON = "org.apache.kafka.server.common.";
    /** Offered only by brokers with a plug-in that receives metrics. */
    private static final List<String> NEED_A_PLUGIN = List.of("GET_TELEMETRY_SUBSCRIPTIONS", "PUSH_TELEMETRY");

    public static void main(String[] arguments) throws ReflectiveOperationException {
        String release = arguments[0];
        for (ApiKeys api : ApiKeys.apisForListener(ListenerType.BROKER))
            if (!NEED_A_PLUGIN.contains(api.name()) && api.oldestVersion() <= api.latestVersion(false))
                System.out.println(String.join("\t", release, "api", api.name(), "" + api.id, "" + api.oldestVersion(), "" + api.latestVersion(false)));
        for (String line : features()) System.out.println(release + "\t" + line);
    }

    /** Releases differ in the names of these classes, so they are looked up when it runs. */
    private static List<String> features() throws ReflectiveOperationException {
        Class<?> metadata = Class.forName(COMMON + "MetadataVersion");
        Object latest = metadata.getMethod("latestProduction").invoke(null);
        List<String> lines = new ArrayList<>();
        lines.add(line("metadata.version", level(lowest(metadata)), level(latest), level(latest)));
        Class<?> features = firstClass("Feature", "Features");
        for (Object feature : (List<?>) features.getField("PRODUCTION_FEATURES").get(null)) {
            short highest = (short) features.getMethod("latestProduction").invoke(feature);
            if (highest > 0)
                lines.add(line((String) features.getMethod("featureName").invoke(feature), (short) features.getMethod("minimumProduction").invoke(feature),
                    highest, defaultLevel(features, feature, metadata, latest)));
        }
        return lines;
    }

    private static short defaultLevel(Class<?> features, Object feature, Class<?> metadata, Object latest) throws ReflectiveOperationException {
        String name = features.getSimpleName().equals("Feature") ? "defaultLevel" : "defaultValue";
        return (short) features.getMethod(name, metadata).invoke(feature, latest);
    }

    private static Object lowest(Class<?> metadata) throws ReflectiveOperationException {
        try {
            return metadata.getField("MINIMUM_KRAFT_VERSION").get(null);
        } catch (NoSuchFieldException renamed) {
            return metadata.getField("MINIMUM_VERSION").get(null);
        }
    }

    private static short level(Object version) throws ReflectiveOperationException {
        return (short) version.getClass().getMethod("featureLevel").invoke(version);
    }

    private static Class<?> firstClass(String... names) throws ClassNotFoundException {
        for (String name : names)
            try {
                return Class.forName(COMMON + name);
            } catch (ClassNotFoundException next) {
                continue;
            }
        throw new ClassNotFoundException(String.join(" or ", names));
    }

    private static String line(String name, short low, short high, short level) {
        return String.join("\t", "feature", name, "" + low, "" + high, "" + level);
    }
}
