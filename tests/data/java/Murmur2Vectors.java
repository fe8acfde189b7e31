import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import org.apache.kafka.common.utils.Utils;

/** Writes Java's murmur2 of 20,000 keys: key i is the first i % 65 bytes of SHA-512 of i's decimal text. Big-endian ints. */
public class Murmur2Vectors {
    public static void main(String[] arguments) throws Exception {
        MessageDigest sha = MessageDigest.getInstance("SHA-512");
        try (DataOutputStream out = new DataOutputStream(new FileOutputStream(arguments[0]))) {
            for (int i = 0; i < 20_000; i++) {
                byte[] digest = sha.digest(Integer.toString(i).getBytes(StandardCharsets.US_ASCII));
                out.writeInt(Utils.murmur2(Arrays.copyOf(digest, i % 65)));
            }
        }
    }
}
