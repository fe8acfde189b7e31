import java.util.*;
import org.apache.kafka.common.serialization.*;

/** Prints what Java's serializers write, as "serde value hex" lines. */
public class SerdeVectors {
    static <T> void print(String name, Serializer<T> serializer, T value) {
        System.out.println(name + "\t" + value + "\t" + HexFormat.of().formatHex(serializer.serialize("t", value)));
    }

    public static void main(String[] arguments) {
        for (short value : new short[] {0, 1, -1, Short.MAX_VALUE, Short.MIN_VALUE}) print("short", new ShortSerializer(), value);
        for (int value : new int[] {0, 1, -1, 258, Integer.MAX_VALUE, Integer.MIN_VALUE}) print("integer", new IntegerSerializer(), value);
        for (long value : new long[] {0, 1, -1, 1L << 40, Long.MAX_VALUE, Long.MIN_VALUE}) print("long", new LongSerializer(), value);
        for (float value : new float[] {0f, -0f, 1.5f, -2.25f, Float.POSITIVE_INFINITY}) print("float", new FloatSerializer(), value);
        for (double value : new double[] {0d, -0d, 0.1d, -1e300d, Double.NEGATIVE_INFINITY}) print("double", new DoubleSerializer(), value);
        for (String value : new String[] {"", "key", "gr\u00fc\u00df", "\ud83d\ude00"}) print("string", new StringSerializer(), value);
        print("uuid", new UUIDSerializer(), UUID.fromString("123e4567-e89b-12d3-a456-426614174000"));
    }
}
