import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.token.delegation.DelegationToken;

/** What Java's Admin answers about things that a test has prepared, one fact a line, and the changes that the test makes too.
 *  Written without lambdas and generics, for Janino: the Java that runs it may have no compiler. */
public class AdminAnswers {
    static Admin admin;
    static String base;

    /** Arguments: address, address to log in at, user, password, the prefix of all names; one more: make changes, too. */
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        base = args[4];
        admin = Admin.create(settings);
        topics();
        configs();
        offsets();
        groups();
        transactions();
        security();
        cluster();
        refusals();
        if (args.length > 5) {
            changes();
        }
        admin.close();
        settings.put("bootstrap.servers", args[1]);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", "SCRAM-SHA-512");
        settings.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"" + args[2]
            + "\" password=\"" + args[3] + "\";");
        admin = Admin.create(settings);
        tokens();
        admin.close();
    }

    static void say(String question, Object[] facts) {
        StringBuilder line = new StringBuilder(question);
        for (int i = 0; i < facts.length; i++) {
            Object fact = facts[i] instanceof Optional ? ((Optional) facts[i]).orElse(null) : facts[i];
            line.append("\t").append(fact == null ? "None" : String.valueOf(fact));
        }
        System.out.println(line);
    }

    static Object or(boolean known, Object value) {
        return known ? value : null;
    }

    static String ids(Collection nodes) {
        StringBuilder found = new StringBuilder();
        for (Iterator it = nodes.iterator(); it.hasNext();) {
            found.append(found.length() == 0 ? "" : ",").append(((Node) it.next()).id());
        }
        return found.toString();
    }

    static String joined(Collection partitions) {
        TreeSet sorted = new TreeSet();
        for (Iterator it = partitions.iterator(); it.hasNext();) {
            sorted.add(String.valueOf(it.next()));
        }
        return String.join(",", sorted);
    }

    static TopicPartition at(int partition) {
        return new TopicPartition(base, partition);
    }

    static Map each(Collection keys, Object value) {
        Map made = new HashMap();
        for (Iterator it = keys.iterator(); it.hasNext();) {
            made.put(it.next(), value);
        }
        return made;
    }

    static void topics() throws Exception {
        Set names = (Set) admin.listTopics().names().get();
        for (Iterator it = names.iterator(); it.hasNext();) {
            say("list_topics", new Object[] {it.next()});
        }
        Map found = (Map) admin.describeTopics(Collections.singleton(base)).allTopicNames().get();
        TopicDescription topic = (TopicDescription) found.get(base);
        byte[] id = Base64.getUrlDecoder().decode(topic.topicId().toString());
        StringBuilder hex = new StringBuilder();
        for (int i = 0; i < id.length; i++) {
            hex.append(String.format("%02x", new Object[] {Byte.valueOf(id[i])}));
        }
        say("describe_topics", new Object[] {topic.name(), hex, Boolean.valueOf(topic.isInternal())});
        for (Iterator it = topic.partitions().iterator(); it.hasNext();) {
            TopicPartitionInfo each = (TopicPartitionInfo) it.next();
            say("describe_topics", new Object[] {Integer.valueOf(each.partition()), Integer.valueOf(each.leader().id()), ids(each.replicas()), ids(each.isr())});
        }
    }

    static void configs() throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, base);
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        Map found = (Map) admin.describeConfigs(Arrays.asList(new ConfigResource[] {topic, broker}), options).all().get();
        for (Iterator it = found.entrySet().iterator(); it.hasNext();) {
            Map.Entry resource = (Map.Entry) it.next();
            String kind = ((ConfigResource) resource.getKey()).type().name();
            for (Iterator entries = ((Config) resource.getValue()).entries().iterator(); entries.hasNext();) {
                ConfigEntry each = (ConfigEntry) entries.next();
                StringBuilder synonyms = new StringBuilder();
                for (Iterator others = each.synonyms().iterator(); others.hasNext();) {
                    ConfigEntry.ConfigSynonym other = (ConfigEntry.ConfigSynonym) others.next();
                    synonyms.append(other.name() + "=" + (other.value() == null ? "None" : other.value()) + ":" + source(other.source()) + ";");
                }
                int words = each.documentation() == null ? 0 : each.documentation().length();
                say("describe_configs " + kind, new Object[] {each.name(), each.value(), source(each.source()), each.type(), Boolean.valueOf(each.isReadOnly()),
                    Boolean.valueOf(each.isSensitive()), Boolean.valueOf(each.isDefault()), synonyms, Integer.valueOf(words)});
            }
        }
    }

    static String source(ConfigEntry.ConfigSource source) {
        return source.name().replace("_CONFIG", "").replace("DYNAMIC_TOPIC", "TOPIC").replace("DYNAMIC_DEFAULT_BROKER", "DYNAMIC_BROKER_DEFAULT");
    }

    static void offsets() throws Exception {
        OffsetSpec[] specs = new OffsetSpec[] {OffsetSpec.latest(), OffsetSpec.earliest(), OffsetSpec.maxTimestamp(), OffsetSpec.earliestLocal(),
            OffsetSpec.forTimestamp(1500L)};
        for (int i = 0; i < specs.length; i++) {
            for (int partition = 0; partition < 2; partition++) {
                ListOffsetsResult.ListOffsetsResultInfo found = (ListOffsetsResult.ListOffsetsResultInfo)
                    admin.listOffsets(Collections.singletonMap(at(partition), specs[i])).partitionResult(at(partition)).get();
                say("list_offsets", new Object[] {Integer.valueOf(i), Integer.valueOf(partition), or(found.offset() >= 0, Long.valueOf(found.offset())),
                    or(found.timestamp() >= 0, Long.valueOf(found.timestamp()))});
            }
        }
    }

    static void groups() throws Exception {
        Collection listed = (Collection) admin.listGroups().all().get();
        List ids = new ArrayList();
        for (Iterator it = listed.iterator(); it.hasNext();) {
            GroupListing each = (GroupListing) it.next();
            if (each.groupId().startsWith(base)) {
                ids.add(each.groupId());
                say("list_groups", new Object[] {each.groupId(), each.protocol(), ((GroupState) each.groupState().get()).toString(),
                    ((GroupType) each.type().get()).toString().toLowerCase()});
            }
        }
        Map described = (Map) admin.describeConsumerGroups(ids).all().get();
        for (Iterator it = described.values().iterator(); it.hasNext();) {
            ConsumerGroupDescription group = (ConsumerGroupDescription) it.next();
            say("describe_groups", new Object[] {group.groupId(), group.type().toString().toLowerCase(), group.groupState(), group.partitionAssignor(),
                or(group.groupEpoch().isPresent(), group.groupEpoch().orElse(null)), Integer.valueOf(group.coordinator().id())});
            for (Iterator members = group.members().iterator(); members.hasNext();) {
                MemberDescription member = (MemberDescription) members.next();
                Object target = member.targetAssignment().isPresent() ? joined(((MemberAssignment) member.targetAssignment().get()).topicPartitions()) : null;
                say("describe_groups", new Object[] {group.groupId(), member.consumerId(), member.groupInstanceId(), member.clientId(), member.host(),
                    joined(member.assignment().topicPartitions()), target});
            }
        }
        Map committed = (Map) ((Map) admin.listConsumerGroupOffsets(base + "-empty").all().get()).get(base + "-empty");
        for (Iterator it = committed.entrySet().iterator(); it.hasNext();) {
            Map.Entry entry = (Map.Entry) it.next();
            OffsetAndMetadata each = (OffsetAndMetadata) entry.getValue();
            say("group_offsets", new Object[] {entry.getKey(), Long.valueOf(each.offset()), each.metadata(), each.leaderEpoch()});
        }
    }

    static void transactions() throws Exception {
        Collection listed = (Collection) admin.listTransactions().all().get();
        for (Iterator it = listed.iterator(); it.hasNext();) {
            TransactionListing each = (TransactionListing) it.next();
            if (each.transactionalId().startsWith(base)) {
                say("list_transactions", new Object[] {each.transactionalId(), Long.valueOf(each.producerId()), each.state()});
            }
        }
        TransactionDescription found = (TransactionDescription) admin.describeTransactions(Collections.singleton(base + "-tx")).description(base + "-tx").get();
        say("describe_transactions", new Object[] {found.state(), Long.valueOf(found.producerId()), Integer.valueOf(found.producerEpoch()),
            Long.valueOf(found.transactionTimeoutMs()), or(found.transactionStartTimeMs().isPresent(), Long.valueOf(found.transactionStartTimeMs().orElse(0L))),
            joined(found.topicPartitions())});
        DescribeProducersResult.PartitionProducerState states = (DescribeProducersResult.PartitionProducerState)
            admin.describeProducers(Collections.singleton(at(0))).partitionResult(at(0)).get();
        for (Iterator it = states.activeProducers().iterator(); it.hasNext();) {
            ProducerState each = (ProducerState) it.next();
            say("describe_producers", new Object[] {Long.valueOf(each.producerId()), Integer.valueOf(each.producerEpoch()),
                or(each.lastSequence() >= 0, Integer.valueOf(each.lastSequence())), or(each.lastTimestamp() >= 0, Long.valueOf(each.lastTimestamp())),
                or(each.currentTransactionStartOffset().isPresent(), Long.valueOf(each.currentTransactionStartOffset().orElse(0L)))});
        }
    }

    static void security() throws Exception {
        Collection acls = (Collection) admin.describeAcls(AclBindingFilter.ANY).values().get();
        for (Iterator it = acls.iterator(); it.hasNext();) {
            AclBinding each = (AclBinding) it.next();
            if (each.pattern().name().startsWith(base)) {
                say("describe_acls", new Object[] {each.pattern().resourceType(), each.pattern().name(), each.pattern().patternType(), each.entry().principal(),
                    each.entry().host(), each.entry().operation(), each.entry().permissionType()});
            }
        }
        Map users = (Map) admin.describeUserScramCredentials().all().get();
        for (Iterator it = users.values().iterator(); it.hasNext();) {
            UserScramCredentialsDescription each = (UserScramCredentialsDescription) it.next();
            for (Iterator ways = each.credentialInfos().iterator(); ways.hasNext();) {
                ScramCredentialInfo way = (ScramCredentialInfo) ways.next();
                say("describe_scram_users", new Object[] {each.name(), way.mechanism().name().replace("SCRAM_", ""), Integer.valueOf(way.iterations())});
            }
        }
        Map quotas = (Map) admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get();
        for (Iterator it = quotas.entrySet().iterator(); it.hasNext();) {
            Map.Entry each = (Map.Entry) it.next();
            Map entity = ((ClientQuotaEntity) each.getKey()).entries();
            for (Iterator values = ((Map) each.getValue()).entrySet().iterator(); values.hasNext();) {
                Map.Entry value = (Map.Entry) values.next();
                say("describe_quotas", new Object[] {name(entity, "user"), name(entity, "client-id"), name(entity, "ip"), value.getKey(), value.getValue()});
            }
        }
    }

    static Object name(Map entity, String type) {
        Object name = entity.get(type);
        return entity.containsKey(type) && name == null ? "DEFAULT" : name;
    }

    static void cluster() throws Exception {
        DescribeClusterResult found = admin.describeCluster();
        say("describe_cluster", new Object[] {found.clusterId().get()});
        for (Iterator it = ((Collection) found.nodes().get()).iterator(); it.hasNext();) {
            Node each = (Node) it.next();
            say("describe_cluster", new Object[] {Integer.valueOf(each.id()), each.host(), Integer.valueOf(each.port()), each.rack()});
        }
        FeatureMetadata features = (FeatureMetadata) admin.describeFeatures().featureMetadata().get();
        for (Iterator it = features.supportedFeatures().entrySet().iterator(); it.hasNext();) {
            Map.Entry each = (Map.Entry) it.next();
            SupportedVersionRange range = (SupportedVersionRange) each.getValue();
            FinalizedVersionRange level = (FinalizedVersionRange) features.finalizedFeatures().get(each.getKey());
            say("describe_features", new Object[] {each.getKey(), Short.valueOf(range.minVersion()), Short.valueOf(range.maxVersion()),
                Integer.valueOf(level == null ? 0 : (int) level.maxVersionLevel())});
        }
        QuorumInfo quorum = (QuorumInfo) admin.describeMetadataQuorum().quorumInfo().get();
        say("describe_quorum", new Object[] {Integer.valueOf(quorum.leaderId()), Long.valueOf(quorum.leaderEpoch())});
        for (Iterator it = quorum.voters().iterator(); it.hasNext();) {
            say("describe_quorum", new Object[] {"voter", Integer.valueOf(((QuorumInfo.ReplicaState) it.next()).replicaId())});
        }
        for (Iterator it = quorum.observers().iterator(); it.hasNext();) {
            say("describe_quorum", new Object[] {"observer", Integer.valueOf(((QuorumInfo.ReplicaState) it.next()).replicaId())});
        }
        Map moving = (Map) admin.listPartitionReassignments().reassignments().get();
        say("list_partition_reassignments", new Object[] {Integer.valueOf(moving.size())});
        Map directories = (Map) ((Map) admin.describeLogDirs(Collections.singleton(Integer.valueOf(1))).allDescriptions().get()).get(Integer.valueOf(1));
        for (Iterator it = directories.entrySet().iterator(); it.hasNext();) {
            Map.Entry entry = (Map.Entry) it.next();
            LogDirDescription directory = (LogDirDescription) entry.getValue();
            say("describe_log_dirs", new Object[] {entry.getKey(), directory.error(), Long.valueOf(directory.totalBytes().orElse(-1L))});
            for (Iterator replicas = directory.replicaInfos().entrySet().iterator(); replicas.hasNext();) {
                Map.Entry replica = (Map.Entry) replicas.next();
                ReplicaInfo each = (ReplicaInfo) replica.getValue();
                if (((TopicPartition) replica.getKey()).topic().equals(base)) {
                    say("describe_log_dirs", new Object[] {replica.getKey(), Long.valueOf(each.size()), Long.valueOf(each.offsetLag()), Boolean.valueOf(each.isFuture())});
                }
            }
        }
        Map elected = (Map) admin.electLeaders(ElectionType.PREFERRED, Collections.singleton(at(0))).partitions().get();
        boolean needed = elected.containsKey(at(0)) && !((Optional) elected.get(at(0))).isPresent();
        say("elect_leaders", new Object[] {at(0), Boolean.valueOf(needed)});
    }

    static void refused(String what, KafkaFuture future) throws Exception {
        try {
            future.get();
            say("refusals", new Object[] {what, null});
        } catch (ExecutionException failed) {
            say("refusals", new Object[] {what, Errors.forException(failed.getCause()).name()});
        }
    }

    static void refusals() throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, base);
        AlterConfigOp wrong = new AlterConfigOp(new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET);
        refused("topic exists", admin.createTopics(Collections.singleton(new NewTopic(base, 1, (short) 1))).all());
        refused("topic name", admin.createTopics(Collections.singleton(new NewTopic("a/b", 1, (short) 1))).all());
        refused("replication factor", admin.createTopics(Collections.singleton(new NewTopic(base + "-large", 1, (short) 7))).all());
        refused("topic config", admin.createTopics(Collections.singleton(new NewTopic(base + "-c", 1, (short) 1).configs(Collections.singletonMap("retention.ms", "soon")))).all());
        refused("unknown topic", admin.describeTopics(Collections.singleton(base + "-none")).allTopicNames());
        refused("delete unknown topic", admin.deleteTopics(Collections.singleton(base + "-none")).all());
        refused("fewer partitions", admin.createPartitions(Collections.singletonMap(base, NewPartitions.increaseTo(1))).all());
        refused("config value", admin.incrementalAlterConfigs(Collections.singletonMap(topic, Collections.singleton(wrong))).all());
        refused("records beyond the end", admin.deleteRecords(Collections.singletonMap(at(0), RecordsToDelete.beforeOffset(99L))).all());
        refused("delete unknown group", admin.deleteConsumerGroups(Collections.singleton(base + "-none")).all());
        refused("delete used group", admin.deleteConsumerGroups(Collections.singleton(base + "-classic")).all());
        refused("unknown transaction", admin.describeTransactions(Collections.singleton(base + "-none")).all());
        refused("move to unknown broker", admin.alterPartitionReassignments(Collections.singletonMap(at(0),
            Optional.of(new NewPartitionReassignment(Collections.singletonList(Integer.valueOf(99)))))).all());
        refused("cancel no move", admin.alterPartitionReassignments(Collections.singletonMap(at(0), Optional.empty())).all());
        refused("token without login", admin.createDelegationToken().delegationToken());
    }

    static void changes() throws Exception {
        String name = base + "-java";
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, name);
        Map configs = new HashMap();
        configs.put("retention.ms", "3600000");
        admin.createTopics(Collections.singleton(new NewTopic(name, 2, (short) 1).configs(configs))).all().get();
        admin.createPartitions(Collections.singletonMap(name, NewPartitions.increaseTo(3))).all().get();
        List ops = new ArrayList();
        ops.add(new AlterConfigOp(new ConfigEntry("segment.ms", "60000"), AlterConfigOp.OpType.SET));
        ops.add(new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND));
        ops.add(new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE));
        admin.incrementalAlterConfigs(Collections.singletonMap(topic, ops)).all().get();
        Map moved = Collections.singletonMap(new TopicPartition(name, 1), new OffsetAndMetadata(7L, "by hand"));
        admin.alterConsumerGroupOffsets(name, moved).all().get();
        admin.createAcls(Collections.singleton(new AclBinding(new ResourcePattern(ResourceType.TOPIC, name, PatternType.PREFIXED),
            new AccessControlEntry("User:zoe", "10.0.0.2", AclOperation.ALTER_CONFIGS, AclPermissionType.DENY)))).all().get();
        ClientQuotaAlteration.Op rate = new ClientQuotaAlteration.Op("consumer_byte_rate", Double.valueOf(12345));
        admin.alterClientQuotas(Collections.singleton(new ClientQuotaAlteration(new ClientQuotaEntity(Collections.singletonMap("client-id", name)),
            Collections.singleton(rate)))).all().get();
        admin.alterUserScramCredentials(Collections.singletonList(new UserScramCredentialUpsertion(name, new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 5000),
            "secret"))).all().get();
        DeletedRecords left = (DeletedRecords) ((KafkaFuture) admin.deleteRecords(Collections.singletonMap(at(2), RecordsToDelete.beforeOffset(1L))).lowWatermarks().get(at(2))).get();
        say("delete_records", new Object[] {Long.valueOf(left.lowWatermark())});
    }

    static void tokens() throws Exception {
        Collection tokens = (Collection) admin.describeDelegationToken().delegationTokens().get();
        for (Iterator it = tokens.iterator(); it.hasNext();) {
            DelegationToken each = (DelegationToken) it.next();
            say("describe_delegation_tokens", new Object[] {each.tokenInfo().tokenId(), each.tokenInfo().owner(), each.tokenInfo().tokenRequester(),
                joined(each.tokenInfo().renewers()), Long.valueOf(each.tokenInfo().issueTimestamp()), Long.valueOf(each.tokenInfo().expiryTimestamp()),
                Long.valueOf(each.tokenInfo().maxTimestamp()), each.hmacAsBase64String()});
        }
    }
}
