// The live queries in Flink, on a mini cluster in this process.
//
// usage: LiveQueries FOLDER QUERY MODE PARALLELISM MINI_BATCH RATE ROUNDS
//
// FOLDER holds the columns ts, key, et, val as little-endian files; ts are microseconds from the first row.
// Flink's event time counts milliseconds, so a microsecond of the feed is a millisecond here, and windows are scaled alike.
// The first row is at BASE, since OVER drops rows at time 0.
// MODE: source (generate and discard), speed, answer (write FOLDER/answer.csv), latency (open loop at RATE rows a second).
// Each round prints a line of JSON.

import java.io.IOException;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.RowType;

public final class LiveQueries {
    static final long STEP = 3;
    static final long BASE = 1_000_000_000;
    static final double WARM = 0.2;
    static final long SPIN_NANOS = 100_000;

    static long[] ts;
    static long[] key;
    static int[] et;
    static long[] val;

    static final AtomicLong firstNanos = new AtomicLong();
    static volatile long firstCpu;
    static final Queue<String> answers = new ConcurrentLinkedQueue<>();
    static final Queue<long[]> results = new ConcurrentLinkedQueue<>();

    private LiveQueries() {}

    public static void main(String[] args) throws Exception {
        Path folder = Path.of(args[0]);
        String query = args[1];
        String mode = args[2];
        int parallelism = Integer.parseInt(args[3]);
        boolean miniBatch = Boolean.parseBoolean(args[4]);
        double rate = Double.parseDouble(args[5]);
        int rounds = Integer.parseInt(args[6]);
        load(folder);
        for (int round = 0; round < rounds; round++) {
            firstNanos.set(0);
            answers.clear();
            results.clear();
            StreamExecutionEnvironment env = environment(parallelism, miniBatch, mode);
            DataStream<RowData> rows = rows(env, query, parallelism, mode.equals("latency") ? rate : 0);
            build(env, rows, query, mode).sinkTo(new DiscardingSink<>());
            env.execute(query);
            double seconds = (System.nanoTime() - firstNanos.get()) / 1e9;
            double cpuSeconds = (processCpu() - firstCpu) / 1e9;
            System.out.println(report(mode, seconds, cpuSeconds, rate));
        }
        if (mode.equals("answer")) {
            writeAnswers(folder.resolve("answer.csv"));
        }
        System.exit(0);
    }

    // -- rows ------------------------------------------------------------------------------------------

    static void load(Path folder) throws IOException {
        ts = longs(folder.resolve("ts"));
        key = longs(folder.resolve("key"));
        val = longs(folder.resolve("val"));
        ByteBuffer bytes = bytes(folder.resolve("et"));
        et = new int[bytes.remaining() / Integer.BYTES];
        bytes.asIntBuffer().get(et);
    }

    static long[] longs(Path path) throws IOException {
        ByteBuffer bytes = bytes(path);
        long[] values = new long[bytes.remaining() / Long.BYTES];
        bytes.asLongBuffer().get(values);
        return values;
    }

    static ByteBuffer bytes(Path path) throws IOException {
        return ByteBuffer.wrap(Files.readAllBytes(path)).order(ByteOrder.LITTLE_ENDIAN);
    }

    static RowType rowType() {
        return (RowType)
                DataTypes.ROW(
                                DataTypes.FIELD("ts", DataTypes.TIMESTAMP(3).notNull()),
                                DataTypes.FIELD("key", DataTypes.BIGINT().notNull()),
                                DataTypes.FIELD("et", DataTypes.INT().notNull()),
                                DataTypes.FIELD("val", DataTypes.BIGINT().notNull()))
                        .notNull()
                        .getLogicalType();
    }

    // Subtasks take contiguous ranges of indices; interleaving them lets event time rise evenly in all.
    static DataStream<RowData> rows(StreamExecutionEnvironment env, String query, int parallelism, double rate) {
        int sources = query.equals("count") ? 1 : parallelism; // count windows follow the order of arrival
        int each = ts.length / sources;
        GeneratorFunction<Long, RowData> generate = index -> row((int) (index % each) * sources + (int) (index / each), rate);
        TypeInformation<RowData> type = InternalTypeInfo.of(rowType());
        DataGeneratorSource<RowData> source = new DataGeneratorSource<>(generate, (long) each * sources, type);
        WatermarkStrategy<RowData> times =
                WatermarkStrategy.<RowData>forMonotonousTimestamps()
                        .withTimestampAssigner((row, before) -> row.getTimestamp(0, 3).getMillisecond());
        return env.fromSource(source, times, "rows", type).setParallelism(sources);
    }

    static RowData row(int number, double rate) {
        if (firstNanos.get() == 0 && firstNanos.compareAndSet(0, System.nanoTime())) {
            firstCpu = processCpu();
        }
        if (rate > 0) {
            waitUntil(due(number, rate));
        }
        return GenericRowData.of(TimestampData.fromEpochMillis(BASE + ts[number]), key[number], et[number], val[number]);
    }

    static long due(long number, double rate) {
        return firstNanos.get() + (long) ((number + 1) * 1e9 / rate);
    }

    static void waitUntil(long moment) {
        for (long left = moment - System.nanoTime(); left > 0; left = moment - System.nanoTime()) {
            if (left > SPIN_NANOS) {
                LockSupport.parkNanos(left - SPIN_NANOS);
            }
        }
    }

    // -- queries ---------------------------------------------------------------------------------------

    static StreamExecutionEnvironment environment(int parallelism, boolean miniBatch, String mode) {
        Configuration settings = new Configuration();
        settings.setString("taskmanager.memory.network.max", "128m");
        settings.setString("pipeline.object-reuse", "true");
        settings.setString("rest.bind-address", "127.0.0.1");
        settings.setString("rest.address", "127.0.0.1");
        boolean latency = mode.equals("latency");
        settings.setString("pipeline.auto-watermark-interval", latency ? "1 ms" : "50 ms");
        settings.setString("execution.buffer-timeout.interval", latency ? "1 ms" : "100 ms");
        settings.setString("table.exec.mini-batch.enabled", Boolean.toString(miniBatch));
        settings.setString("table.exec.mini-batch.allow-latency", latency ? "1 ms" : "1 s");
        settings.setString("table.exec.mini-batch.size", "5000");
        return StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings);
    }

    static DataStream<RowData> build(StreamExecutionEnvironment env, DataStream<RowData> rows, String query, String mode) {
        if (mode.equals("source")) {
            return rows;
        }
        DataStream<RowData> made = query.equals("count") ? countWindows(rows) : sql(env, rows, query);
        if (mode.equals("speed")) {
            return made;
        }
        boolean answer = mode.equals("answer");
        return made.map(row -> answer ? noteAnswer(query, row) : noteResult(query, row), made.getType());
    }

    static DataStream<RowData> sql(StreamExecutionEnvironment env, DataStream<RowData> rows, String query) {
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        Schema schema =
                Schema.newBuilder()
                        .column("ts", DataTypes.TIMESTAMP(3).notNull())
                        .column("key", DataTypes.BIGINT().notNull())
                        .column("et", DataTypes.INT().notNull())
                        .column("val", DataTypes.BIGINT().notNull())
                        .watermark("ts", "SOURCE_WATERMARK()")
                        .build();
        tables.createTemporaryView("feed", tables.fromDataStream(rows, schema));
        Table result = tables.sqlQuery(text(query));
        DataType type = result.getResolvedSchema().toSourceRowDataType().bridgedTo(RowData.class);
        return tables.toDataStream(result, type);
    }

    static String text(String query) {
        String window = "select window_start, window_end, `key`, %s as v from table(%s) %s group by window_start, window_end, `key`";
        String some = "where et = 1";
        switch (query) {
            case "tumbling":
                return String.format(window, "sum(val)", "tumble(table feed, descriptor(ts), interval '100' second(3))", some);
            case "sliding":
                return String.format(
                        window,
                        "min(val)",
                        "hop(table feed, descriptor(ts), interval '10' second(2), interval '1000' second(4))",
                        some);
            case "session":
                return String.format(
                        window, "sum(val)", "session(table feed partition by `key`, descriptor(ts), interval '5' second)", "");
            case "rolling":
                // The frame is closed at both ends, so it is a tick shorter than (t - size, t].
                return "select cast(ts as timestamp(3)) as ts, cast(ts as timestamp(3)) as again, `key`, avg(cast(val as double)) over"
                        + " (partition by `key` order by ts range between interval '99.999' second(3) preceding and current row) as v"
                        + " from feed";
            case "filter":
                return "select cast(ts as timestamp(3)) as ts, cast(ts as timestamp(3)) as again, `key`, val * 2 as v from feed where et = 1";
            default:
                throw new IllegalArgumentException("no such query: " + query);
        }
    }

    // SQL has no count windows. The accumulator holds the sum and the first and last time.
    static DataStream<RowData> countWindows(DataStream<RowData> rows) {
        RowType type =
                (RowType)
                        DataTypes.ROW(
                                        DataTypes.FIELD("a", DataTypes.TIMESTAMP(3)),
                                        DataTypes.FIELD("b", DataTypes.TIMESTAMP(3)),
                                        DataTypes.FIELD("key", DataTypes.BIGINT()),
                                        DataTypes.FIELD("v", DataTypes.BIGINT()))
                                .getLogicalType();
        return rows.keyBy((KeySelector<RowData, Long>) row -> row.getLong(1))
                .countWindow(100)
                .aggregate(new SumOfHundred(), TypeInformation.of(long[].class), InternalTypeInfo.of(type));
    }

    static final class SumOfHundred implements AggregateFunction<RowData, long[], RowData> {
        @Override
        public long[] createAccumulator() {
            return new long[] {Long.MAX_VALUE, Long.MIN_VALUE, 0, 0};
        }

        @Override
        public long[] add(RowData row, long[] sum) {
            long time = row.getTimestamp(0, 3).getMillisecond();
            return new long[] {Math.min(sum[0], time), Math.max(sum[1], time), row.getLong(1), sum[3] + row.getLong(3)};
        }

        @Override
        public RowData getResult(long[] sum) {
            return GenericRowData.of(
                    TimestampData.fromEpochMillis(sum[0]), TimestampData.fromEpochMillis(sum[1] + 1), sum[2], sum[3]);
        }

        @Override
        public long[] merge(long[] a, long[] b) {
            return new long[] {Math.min(a[0], b[0]), Math.max(a[1], b[1]), a[2], a[3] + b[3]};
        }
    }

    // -- results ---------------------------------------------------------------------------------------

    static RowData noteAnswer(String query, RowData row) {
        long start = row.getTimestamp(0, 3).getMillisecond() - BASE;
        long end = row.getTimestamp(1, 3).getMillisecond() - BASE;
        String value = query.equals("rolling") ? Double.toString(row.getDouble(3)) : Long.toString(row.getLong(3));
        answers.add(start + "," + end + "," + row.getLong(2) + "," + value);
        return row;
    }

    // The row that completes a result is the first whose time moves the watermark to its end.
    static RowData noteResult(String query, RowData row) {
        long end = row.getTimestamp(1, 3).getMillisecond() - BASE;
        long after = query.equals("session") || query.equals("rolling") ? 1 : 0;
        long completing = query.equals("filter") ? end / STEP : Math.floorDiv(end + after + STEP - 1, STEP);
        if (query.equals("count")) {
            completing = (end - 1) / STEP; // the hundredth row itself
        }
        results.add(new long[] {completing, System.nanoTime()});
        return row;
    }

    static String report(String mode, double seconds, double cpuSeconds, double rate) {
        StringBuilder line = new StringBuilder();
        line.append(String.format(Locale.ROOT, "{\"rows\": %d, \"seconds\": %.6f, \"cpu_seconds\": %.6f", ts.length, seconds, cpuSeconds));
        if (mode.equals("latency")) {
            double[] waits =
                    results.stream()
                            .filter(each -> each[0] >= WARM * ts.length && each[0] < ts.length)
                            .mapToDouble(each -> (each[1] - due(each[0], rate)) / 1e9)
                            .toArray();
            Arrays.sort(waits);
            line.append(String.format(Locale.ROOT, ", \"completed\": %d, \"latency\": {", waits.length));
            String[] names = {"p50", "p95", "p99", "max"};
            double[] parts = {0.5, 0.95, 0.99, 1.0};
            for (int i = 0; i < parts.length && waits.length > 0; i++) {
                double value = waits[(int) Math.min(waits.length - 1, Math.floor(parts[i] * waits.length))];
                line.append(String.format(Locale.ROOT, "%s\"%s\": %.6f", i > 0 ? ", " : "", names[i], value));
            }
            line.append("}");
        }
        return line.append("}").toString();
    }

    static void writeAnswers(Path path) throws IOException {
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(path))) {
            out.println("start,end,key,value");
            answers.forEach(out::println);
        }
    }

    static long processCpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
