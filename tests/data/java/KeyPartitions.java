import java.io.*;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/** Answers partition_vectors.py's keys (stdin) with the partition of each, as big-endian shorts (stdout). */
public class KeyPartitions {
    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        while (in.available() > 0) {
            int partitions = in.readInt();
            out.writeShort(BuiltInPartitioner.partitionForKey(in.readNBytes(in.readInt()), partitions));
        }
        out.flush();
    }
}
