import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;

/** Prints what Java's consumers write into a group: "kind version topics partitions generation rack user_data hex" lines. */
public class ConsumerProtocolBytes {
    static final String NOTHING = "-";

    static List<TopicPartition> partitions(String... words) {
        return Arrays.stream(words).map(each -> each.split(":")).map(each -> new TopicPartition(each[0], Integer.parseInt(each[1]))).toList();
    }

    static String words(Collection<?> several) {
        StringJoiner joined = new StringJoiner(",");
        for (Object each : several) joined.add(each instanceof TopicPartition tp ? tp.topic() + ":" + tp.partition() : each.toString());
        return several.isEmpty() ? NOTHING : joined.toString();
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null) return NOTHING;
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return "x" + HexFormat.of().formatHex(bytes);
    }

    static void print(String kind, int version, List<String> topics, List<TopicPartition> partitions, int generation, Optional<String> rack,
                      ByteBuffer userData, ByteBuffer bytes) {
        System.out.println(String.join("\t", kind, "" + version, words(topics), words(partitions), "" + generation, rack.orElse(NOTHING), hex(userData), hex(bytes)));
    }

    static void subscription(List<String> topics, ByteBuffer userData, List<TopicPartition> owned, int generation, Optional<String> rack) {
        for (short version = 0; version <= 3; version++)
            print("subscription", version, topics, owned, generation, rack, userData,
                ConsumerProtocol.serializeSubscription(new Subscription(topics, userData, owned, generation, rack), version));
    }

    static void assignment(List<TopicPartition> partitions, ByteBuffer userData) {
        for (short version = 0; version <= 3; version++)
            print("assignment", version, List.of(), partitions, -1, Optional.empty(), userData,
                ConsumerProtocol.serializeAssignment(new Assignment(partitions, userData), version));
    }

    static void userData(ConsumerPartitionAssignor assignor, int generation, List<TopicPartition> partitions) {
        assignor.onAssignment(new Assignment(partitions), new ConsumerGroupMetadata("g", generation, "m", Optional.empty()));
        print(assignor.name(), 0, List.of(), partitions, generation, Optional.empty(), null, assignor.subscriptionUserData(Set.of("t")));
    }

    public static void main(String[] arguments) {
        List<TopicPartition> several = partitions("t:3", "orders:12", "t:0", "a.b_c-d:2147483647", "orders:2", "zzz:1", "t:1");
        ByteBuffer some = ByteBuffer.wrap(new byte[] {0, -1, 7});
        subscription(List.of(), null, List.of(), -1, Optional.empty());
        subscription(List.of("t"), null, List.of(), -1, Optional.empty());
        subscription(List.of("t", "orders", "a.b_c-d", "zzz"), some, several, 17, Optional.of("eu-west-1a"));
        subscription(List.of("b", "a"), ByteBuffer.allocate(0), partitions("b:0"), 2147483647, Optional.of("gr\u00fc\u00df"));
        assignment(List.of(), null);
        assignment(partitions("t:0"), null);
        assignment(several, some);
        assignment(partitions("b:1", "b:0", "a:5"), ByteBuffer.allocate(0));
        for (ConsumerPartitionAssignor assignor : List.of(new StickyAssignor(), new CooperativeStickyAssignor()))
            print(assignor.name(), 0, List.of(), List.of(), -1, Optional.empty(), null, assignor.subscriptionUserData(Set.of("t")));
        List<TopicPartition> many = new ArrayList<>();
        for (int i = 0; i < 40; i++) many.add(new TopicPartition("topic-" + i * 7919 % 101, i % 3));
        for (List<TopicPartition> each : List.of(List.<TopicPartition>of(), partitions("t:0"), several, many)) {
            userData(new StickyAssignor(), 5, each);
            userData(new CooperativeStickyAssignor(), 5, each);
        }
        userData(new StickyAssignor(), 2147483647, several);
        userData(new CooperativeStickyAssignor(), 2147483647, several);
    }
}
