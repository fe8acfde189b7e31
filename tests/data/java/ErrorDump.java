import java.util.List;
import java.util.StringJoiner;
import org.apache.kafka.common.protocol.Errors;

/** Prints every broker error: code, name, exception class, and the groups of exceptions it belongs to. */
public class ErrorDump {
    private static final List<String> GROUPS = List.of(
        "Retriable", "RefreshRetriable", "InvalidMetadata", "TransactionAbortable", "ApplicationRecoverable",
        "InvalidConfiguration", "Authentication", "Authorization");

    public static void main(String[] arguments) throws ClassNotFoundException {
        for (Errors error : Errors.values()) {
            Throwable thrown = error.exception();
            StringJoiner groups = new StringJoiner(",");
            for (String group : GROUPS)
                if (Class.forName("org.apache.kafka.common.errors." + group + "Exception").isInstance(thrown)) groups.add(group);
            String name = thrown == null ? "-" : thrown.getClass().getSimpleName();
            System.out.println(error.code() + "\t" + error.name() + "\t" + name + "\t" + groups);
        }
    }
}
