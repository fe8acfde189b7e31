import java.io.*;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.common.*;

/** Plays assignor_questions.py's scenarios (stdin), and writes who was given what in each rebalance, or what was raised. */
public class AssignorVectors {
    static final String NOTHING = "-", AS_GIVEN = "=";
    static final List<ConsumerPartitionAssignor> KINDS =
        List.of(new RangeAssignor(), new RoundRobinAssignor(), new StickyAssignor(), new CooperativeStickyAssignor());

    static ConsumerPartitionAssignor kind;
    static Map<Integer, Node> brokers = new TreeMap<>();
    static List<PartitionInfo> partitions = new ArrayList<>();
    static Map<String, Subscription> subscriptions = new TreeMap<>();
    /** What each member was given last, and in which rebalance. */
    static Map<String, List<TopicPartition>> given = new HashMap<>();
    static Map<String, Integer> when = new HashMap<>();
    static int generation;
    static boolean ended;

    static ConsumerPartitionAssignor fresh() throws ReflectiveOperationException {
        return kind.getClass().getDeclaredConstructor().newInstance();
    }

    static List<String> several(String word) {
        return word.equals(NOTHING) ? List.of() : List.of(word.split(","));
    }

    static List<TopicPartition> claimed(String word) {
        return several(word).stream().map(each -> each.split(":")).map(each -> new TopicPartition(each[0], Integer.parseInt(each[1]))).toList();
    }

    static Optional<String> optional(String word) {
        return word.equals(NOTHING) ? Optional.empty() : Optional.of(word);
    }

    static void member(String[] words) throws ReflectiveOperationException {
        boolean asGiven = words[5].equals(AS_GIVEN), everGiven = !asGiven || given.containsKey(words[1]);
        List<TopicPartition> claims = asGiven ? given.getOrDefault(words[1], List.of()) : claimed(words[5]);
        int since = asGiven ? when.getOrDefault(words[1], -1) : Integer.parseInt(words[6]);
        ConsumerPartitionAssignor own = fresh();
        if (everGiven)
            own.onAssignment(new Assignment(claims), new ConsumerGroupMetadata("g", since, words[1], optional(words[2])));
        boolean eager = !own.supportedProtocols().contains(RebalanceProtocol.COOPERATIVE);
        Subscription subscription = new Subscription(several(words[4]), own.subscriptionUserData(new TreeSet<>(several(words[4]))),
            eager ? List.of() : claims, words[7].equals("1") ? since : -1, optional(words[3]));
        subscription.setGroupInstanceId(optional(words[2]));
        subscriptions.put(words[1], subscription);
    }

    static void topic(String[] words) {
        String[] all = words[2].split(",");
        for (int i = 0; i < all.length; i++) {
            Node[] nodes = Arrays.stream(all[i].split("\\.")).map(each -> brokers.get(Integer.parseInt(each))).toArray(Node[]::new);
            partitions.add(new PartitionInfo(words[1], i, nodes[0], nodes, nodes));
        }
    }

    static String share() throws ReflectiveOperationException {
        generation++;
        Cluster cluster = new Cluster("c", brokers.values(), partitions, Set.of(), Set.of());
        Map<String, Subscription> members = new HashMap<>(); // as the consumer's coordinator has them
        subscriptions.forEach(members::put);
        try {
            Map<String, Assignment> shares = fresh().assign(cluster, new GroupSubscription(members)).groupAssignment();
            StringJoiner line = new StringJoiner("|");
            new TreeMap<>(shares).forEach((member, assignment) -> {
                given.put(member, assignment.partitions());
                when.put(member, generation);
                StringJoiner list = new StringJoiner(",");
                assignment.partitions().stream().sorted(Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition))
                    .forEach(each -> list.add(each.topic() + ":" + each.partition()));
                line.add(member + "=" + list);
            });
            return line.toString();
        } catch (RuntimeException raised) {
            ended = true;
            return "!" + raised.getClass().getSimpleName();
        } finally {
            partitions.clear();
            subscriptions.clear();
        }
    }

    static void scenario(String name) {
        kind = KINDS.stream().filter(each -> each.name().equals(name)).findFirst().orElseThrow();
        brokers.clear();
        partitions.clear();
        subscriptions.clear();
        given.clear();
        when.clear();
        generation = 0;
        ended = false;
    }

    public static void main(String[] arguments) throws Exception {
        byte[] questions = System.in.readAllBytes();
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out), false, StandardCharsets.UTF_8);
        out.println(HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(questions)));
        for (String line : new String(questions, StandardCharsets.UTF_8).split("\n")) {
            String[] words = line.split("\t");
            if (words[0].equals("scenario")) scenario(words[1]);
            else if (ended) continue;
            else if (words[0].equals("broker")) brokers.put(Integer.parseInt(words[1]), new Node(Integer.parseInt(words[1]), "host", 9092, optional(words[2]).orElse(null)));
            else if (words[0].equals("topic")) topic(words);
            else if (words[0].equals("member")) member(words);
            else if (words[0].equals("share")) out.println(share());
        }
        out.flush();
    }
}
