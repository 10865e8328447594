// Nexmark in Flink SQL on a mini cluster. Arguments: folder, streams (a,b), mode (speed, answer, source), parallelism,
// mini-batch, rounds. The folder holds each column of each stream as a file, and the query as query.sql. Events are
// replayed from arrays in memory: the cheapest source there is; mode "source" measures it alone.

import java.io.IOException;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
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
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;

public final class NexmarkQueries {
    static final AtomicLong firstNanos = new AtomicLong();
    static volatile long firstCpu;
    static final Queue<String> answers = new ConcurrentLinkedQueue<>();
    static final List<Events> streams = new ArrayList<>();

    private NexmarkQueries() {}

    static final class Events {
        final String name;
        final String[] columns;
        final long[][] numbers;
        final StringData[][] texts;

        Events(Path folder, String name) throws IOException {
            this.name = name;
            columns = columnsOf(name);
            numbers = new long[columns.length][];
            texts = new StringData[columns.length][];
            for (int i = 0; i < columns.length; i++) {
                Path path = folder.resolve(name + "." + columns[i]);
                if (isText(columns[i])) {
                    texts[i] = Files.readAllLines(path).stream().map(StringData::fromString).toArray(StringData[]::new);
                } else {
                    ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(path)).order(ByteOrder.LITTLE_ENDIAN);
                    numbers[i] = new long[bytes.remaining() / Long.BYTES];
                    bytes.asLongBuffer().get(numbers[i]);
                }
            }
        }

        int rows() {
            return numbers[0].length;
        }

        RowData row(int number) {
            if (firstNanos.get() == 0 && firstNanos.compareAndSet(0, System.nanoTime())) {
                firstCpu = processCpu();
            }
            GenericRowData row = new GenericRowData(columns.length);
            row.setField(0, TimestampData.fromEpochMillis(numbers[0][number] / 1000));
            for (int i = 1; i < columns.length; i++) {
                row.setField(i, texts[i] == null ? (Object) numbers[i][number] : texts[i][number]);
            }
            return row;
        }
    }

    static String[] columnsOf(String stream) {
        switch (stream) {
            case "person":
                return new String[] {"ts", "id", "name", "city", "state"};
            case "auction":
                return new String[] {"ts", "id", "seller", "category", "initial_bid", "reserve"};
            default:
                return new String[] {"ts", "auction", "bidder", "price"};
        }
    }

    static boolean isText(String column) {
        return column.equals("name") || column.equals("city") || column.equals("state");
    }

    static DataType typeOf(String column) {
        return column.equals("ts")
                ? DataTypes.TIMESTAMP(3).notNull()
                : isText(column) ? DataTypes.STRING().notNull() : DataTypes.BIGINT().notNull();
    }

    public static void main(String[] args) throws Exception {
        Path folder = Path.of(args[0]);
        String mode = args[2];
        int parallelism = Integer.parseInt(args[3]);
        boolean miniBatch = Boolean.parseBoolean(args[4]);
        String query = Files.readString(folder.resolve("query.sql"));
        for (String name : args[1].split(",")) {
            streams.add(new Events(folder, name));
        }
        long rows = streams.stream().mapToLong(Events::rows).sum();
        for (int round = 0; round < Integer.parseInt(args[5]); round++) {
            firstNanos.set(0);
            answers.clear();
            StreamExecutionEnvironment env = environment(parallelism, miniBatch);
            build(env, query, mode, parallelism);
            env.execute("nexmark");
            double seconds = (System.nanoTime() - firstNanos.get()) / 1e9;
            double cpuSeconds = (processCpu() - firstCpu) / 1e9;
            System.out.println(
                    String.format(Locale.ROOT, "{\"rows\": %d, \"seconds\": %.6f, \"cpu_seconds\": %.6f}", rows, seconds, cpuSeconds));
        }
        if (mode.equals("answer")) {
            try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(folder.resolve("answer.csv")))) {
                answers.forEach(out::println);
            }
        }
        System.exit(0);
    }

    static StreamExecutionEnvironment environment(int parallelism, boolean miniBatch) {
        Configuration settings = new Configuration();
        settings.setString("taskmanager.memory.network.max", "128m");
        settings.setString("pipeline.object-reuse", "true");
        settings.setString("rest.bind-address", "127.0.0.1");
        settings.setString("rest.address", "127.0.0.1");
        settings.setString("pipeline.auto-watermark-interval", "50 ms");
        settings.setString("execution.buffer-timeout.interval", "100 ms");
        settings.setString("table.exec.mini-batch.enabled", Boolean.toString(miniBatch));
        settings.setString("table.exec.mini-batch.allow-latency", "1 s");
        settings.setString("table.exec.mini-batch.size", "5000");
        settings.setString("table.local-time-zone", "UTC");
        return StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings);
    }

    static void build(StreamExecutionEnvironment env, String query, String mode, int parallelism) {
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        for (int place = 0; place < streams.size(); place++) {
            DataStream<RowData> rows = rows(env, place, parallelism);
            if (mode.equals("source")) {
                rows.sinkTo(new DiscardingSink<>());
            } else {
                Schema.Builder schema = Schema.newBuilder();
                for (String column : streams.get(place).columns) {
                    schema.column(column, typeOf(column));
                }
                tables.createTemporaryView(
                        streams.get(place).name, tables.fromDataStream(rows, schema.watermark("ts", "SOURCE_WATERMARK()").build()));
            }
        }
        if (!mode.equals("source")) {
            results(tables, query, mode.equals("answer")).sinkTo(new DiscardingSink<>());
        }
    }

    static DataStream<RowData> results(StreamTableEnvironment tables, String query, boolean answer) {
        Table result = tables.sqlQuery(query);
        DataType type = result.getResolvedSchema().toSourceRowDataType().bridgedTo(RowData.class);
        DataStream<RowData> made = tables.toDataStream(result, type);
        if (!answer) {
            return made;
        }
        List<LogicalType> types = type.getLogicalType().getChildren();
        return made.map(row -> note(row, types), made.getType());
    }

    // Subtasks take contiguous ranges of indices; interleaving them lets event time rise evenly in all.
    static DataStream<RowData> rows(StreamExecutionEnvironment env, int place, int parallelism) {
        Events events = streams.get(place);
        int share = events.rows() / parallelism;
        GeneratorFunction<Long, RowData> generate =
                index -> streams.get(place).row((int) (index % share) * parallelism + (int) (index / share));
        RowType row = (RowType) DataTypes.ROW(fields(events)).notNull().getLogicalType();
        TypeInformation<RowData> type = InternalTypeInfo.of(row);
        DataGeneratorSource<RowData> source = new DataGeneratorSource<>(generate, (long) share * parallelism, type);
        WatermarkStrategy<RowData> times =
                WatermarkStrategy.<RowData>forMonotonousTimestamps()
                        .withTimestampAssigner((event, before) -> event.getTimestamp(0, 3).getMillisecond());
        return env.fromSource(source, times, events.name, type);
    }

    static List<DataTypes.Field> fields(Events events) {
        List<DataTypes.Field> fields = new ArrayList<>();
        for (String column : events.columns) {
            fields.add(DataTypes.FIELD(column, typeOf(column)));
        }
        return fields;
    }

    static RowData note(RowData row, List<LogicalType> types) {
        StringBuilder line = new StringBuilder();
        for (int i = 0; i < types.size(); i++) {
            Object value = RowData.createFieldGetter(types.get(i), i).getFieldOrNull(row);
            line.append(i > 0 ? "," : "").append(value instanceof TimestampData ? ((TimestampData) value).getMillisecond() : value);
        }
        answers.add(line.toString());
        return row;
    }

    static long processCpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
