package org.apache.kafka.clients.producer.internals;

import java.io.*;
import java.util.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.utils.LogContext;

/** Answers partition_vectors.py's turns (stdin): for each table of queue lengths, the partition of each draw, as big-endian shorts. */
public class StickyTurns {
    static int draw;

    static Cluster cluster(int partitions) {
        Node node = new Node(1, "host", 9092);
        List<PartitionInfo> infos = new ArrayList<>();
        for (int i = 0; i < partitions; i++) infos.add(new PartitionInfo("t", i, node, new Node[] {node}, new Node[] {node}));
        return new Cluster("c", List.of(node), infos, Set.of(), Set.of());
    }

    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        while (in.available() > 0) {
            int candidates = in.readInt(), all = candidates + in.readInt(), draws = in.readInt();
            int[] lengths = new int[all], ids = new int[all];
            for (int i = 0; i < candidates; i++) {
                lengths[i] = in.readInt();
                ids[i] = i;
            }
            BuiltInPartitioner partitioner = new BuiltInPartitioner(new LogContext(), "t", 1) {
                @Override int randomPartition() { return draw; }
            };
            partitioner.updatePartitionLoadStats(lengths, ids, candidates);
            Cluster cluster = cluster(candidates);
            for (int i = 0; i < draws; i++) {
                draw = in.readInt();
                if (i == 0) partitioner.peekCurrentPartitionInfo(cluster);
                else partitioner.updatePartitionInfo(partitioner.peekCurrentPartitionInfo(cluster), 1, cluster, true);
                out.writeShort(partitioner.peekCurrentPartitionInfo(cluster).partition());
            }
        }
        out.flush();
    }
}
