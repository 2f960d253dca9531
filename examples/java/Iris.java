import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.stream.Stream;

/** Answers rows of four numbers from its input. */
public final class Iris {
    static {
        System.loadLibrary("iris");
    }

    /** Fills labels and probabilities, three a row; not 0 for rows that the model refuses. */
    static native int predict(double[] x, long[] label, double[] probabilities);

    static native String name(long label);

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            double[] x = Stream.of(line.trim().split("\\s+")).mapToDouble(Double::parseDouble).toArray();
            long[] label = new long[1];
            double[] p = new double[3];
            if (predict(x, label, p) != 0) {
                throw new IllegalArgumentException("the model refuses " + Arrays.toString(x));
            }
            System.out.println(name(label[0]) + " " + p[0] + " " + p[1] + " " + p[2]);
        }
    }
}
