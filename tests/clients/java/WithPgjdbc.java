import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.Array;
import java.sql.Connection;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;
import org.postgresql.util.PGInterval;
import org.postgresql.util.PGobject;

/** pgjdbc: the driver of DBeaver, Metabase and all of Java. Run from its source: {@code java -cp JARS WithPgjdbc.java}. */
public class WithPgjdbc {
  static final String CLIENT = "pgjdbc";
  static final int SECONDS_MAX = 60;
  static final String LARGE = "SELECT value, 'name ' || value AS name FROM generate_series(1, 1000000) t(value)";
  static final String LONG =
      "SELECT count(*) FROM generate_series(1, 10) a(value) CROSS JOIN generate_series(1, 100000000) b(value) WHERE (a.value + b.value) % 7 = 3";

  /** One check: it is given a connection of its own. */
  interface Check {
    void run(Connection connection) throws Exception;
  }

  static final ExecutorService RUNNER = Executors.newCachedThreadPool(task -> {
    Thread thread = new Thread(task);
    thread.setDaemon(true);
    return thread;
  });

  static void check(String name, Check check, String... options) {
    String outcome = "passed";
    try {
      Callable<Void> run = () -> {
        try (Connection connection = connect(options)) {
          check.run(connection);
        }
        return null;
      };
      RUNNER.submit(run).get(SECONDS_MAX, TimeUnit.SECONDS);
    } catch (TimeoutException error) {
      outcome = "FAILED no answer within " + SECONDS_MAX + " s";
    } catch (Exception error) {
      Throwable cause = error.getCause() == null ? error : error.getCause();
      StackTraceElement[] frames = cause.getStackTrace();
      String line = Arrays.stream(frames).filter(frame -> "WithPgjdbc.java".equals(frame.getFileName())).findFirst().map(Object::toString).orElse("");
      outcome = "FAILED " + (cause + " " + line).replaceAll("\\s+", " ");
    }
    System.out.println(CLIENT + " | " + name + " | " + outcome);
  }

  /** Options are pairs: name, value. */
  static Connection connect(String... options) throws SQLException {
    Properties properties = new Properties();
    properties.setProperty("user", System.getenv("PGUSER"));
    for (int index = 0; index < options.length; index += 2) {
      properties.setProperty(options[index], options[index + 1]);
    }
    String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE");
    return DriverManager.getConnection(url, properties);
  }

  static void equal(Object found, Object expected) {
    if (!Objects.deepEquals(found, expected)) {
      throw new AssertionError(text(found) + " instead of " + text(expected));
    }
  }

  static String text(Object value) {
    return value instanceof Object[] array ? Arrays.deepToString(array) : value instanceof byte[] bytes ? Arrays.toString(bytes) : String.valueOf(value);
  }

  static void execute(Connection connection, String... statements) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      for (String text : statements) {
        statement.execute(text);
      }
    }
  }

  static String state(Callable<?> block) throws Exception {
    try {
      block.call();
      return "no error";
    } catch (SQLException error) {
      return error.getSQLState();
    }
  }

  static Object one(Connection connection, String query, Object... parameters) throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement(query)) {
      for (int index = 0; index < parameters.length; index++) {
        statement.setObject(index + 1, parameters[index]);
      }
      try (ResultSet rows = statement.executeQuery()) {
        rows.next();
        return rows.getObject(1);
      }
    }
  }

  public static void main(String[] arguments) throws Exception {
    System.out.println(CLIENT + " | version | " + org.postgresql.util.DriverInfo.DRIVER_VERSION);
    check("connect", connection -> {
      equal(one(connection, "SELECT 'x'"), "x");
      equal(connection.isValid(5), true);
      equal(connection.getMetaData().getDatabaseProductName(), "PostgreSQL");
      equal(connection.getSchema(), "public");
    });
    check("password", WithPgjdbc::password);
    types();
    check("parameters", WithPgjdbc::parameters);
    check("prepared statements in binary", WithPgjdbc::prepared, "prepareThreshold", "-1");
    check("simple protocol", connection -> equal(one(connection, "SELECT ?::bigint + 1", 41L), 42L), "preferQueryMode", "simple");
    check("batch insert", WithPgjdbc::batch);
    check("batch insert, rewritten", WithPgjdbc::batch, "reWriteBatchedInserts", "true");
    check("generated keys", WithPgjdbc::generatedKeys);
    check("large result, fetch size", WithPgjdbc::large);
    check("errors", WithPgjdbc::errors);
    check("cancel", WithPgjdbc::cancel);
    check("query timeout", WithPgjdbc::timeout);
    check("transactions", WithPgjdbc::transactions);
    check("transactions that only read", WithPgjdbc::readOnly);
    check("a session that only reads", WithPgjdbc::readOnlySession, "readOnlyMode", "always");
    check("savepoints", WithPgjdbc::savepoints);
    check("copy", WithPgjdbc::copy);
    check("metadata: tables and columns", WithPgjdbc::tables);
    check("metadata: keys and indexes", WithPgjdbc::keys);
    check("metadata: schemas, types, functions", WithPgjdbc::schemas);
    check("metadata of a result", WithPgjdbc::resultMetaData);
    System.exit(0);
  }

  static void password(Connection own) throws Exception {
    String password = Objects.requireNonNullElse(System.getenv("CLIENTS_PASSWORD"), "clients' password");
    try (Connection connection = connect("user", "clients", "password", password)) {
      equal(one(connection, "SELECT current_user"), "clients");
    }
    equal(state(() -> connect("user", "clients", "password", "wrong")), "28P01");
  }

  static void types() {
    UUID uuid = UUID.fromString("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
    Object[][] samples = {
      {"smallint", -5, -5}, {"integer", 2147483647, 2147483647}, {"bigint", Long.MIN_VALUE, Long.MIN_VALUE}, {"real", 0.5f, 0.5f},
      {"double precision", 0.1, 0.1}, {"boolean", true, true}, {"numeric(20, 4)", new BigDecimal("-12345.6789"), new BigDecimal("-12345.6789")},
      {"text", "grüß \\ 'x'", "grüß \\ 'x'"}, {"varchar(10)", "ten", "ten"}, {"char(3)", "abc", "abc"}, {"uuid", uuid, uuid},
      {"bytea", new byte[] {0, -1, 39}, new byte[] {0, -1, 39}}, {"date", LocalDate.of(2024, 2, 29), Date.valueOf("2024-02-29")},
      {"timestamp", LocalDateTime.of(2024, 2, 29, 1, 2, 3, 456000), Timestamp.valueOf("2024-02-29 01:02:03.000456")},
      {"timestamptz", OffsetDateTime.of(2024, 2, 29, 1, 2, 3, 0, ZoneOffset.UTC), Timestamp.from(OffsetDateTime.of(2024, 2, 29, 1, 2, 3, 0, ZoneOffset.UTC).toInstant())},
      {"json", other("json", "{\"a\": [1, \"{x}\"]}"), other("json", "{\"a\": [1, \"{x}\"]}")},
      {"jsonb", other("jsonb", "{\"a\": 1}"), other("jsonb", "{\"a\": 1}")},
      {"vector(3)", other("vector", "[1,2.5,-3]"), other("vector", "[1,2.5,-3]")},
      {"halfvec(3)", other("halfvec", "[1,2.5,-3]"), other("halfvec", "[1,2.5,-3]")},
    };
    for (int number = 0; number < samples.length; number++) {
      Object[] sample = samples[number];
      String table = "java_type_" + number;
      check("type " + sample[0], connection -> {
        execute(connection, "CREATE TABLE " + table + " (id bigint, v " + sample[0] + ")");
        // The driver asks for binary when a statement was run often enough; -1 is from the first time.
        for (String threshold : new String[] {"0", "-1"}) {
          try (Connection same = connect("prepareThreshold", threshold)) {
            execute(same, "TRUNCATE " + table);
            try (PreparedStatement insert = same.prepareStatement("INSERT INTO " + table + " VALUES (?, ?)")) {
              insert.setLong(1, 1);
              insert.setObject(2, sample[1]);
              insert.executeUpdate();
              insert.setLong(1, 2);
              insert.setNull(2, Types.NULL);
              insert.executeUpdate();
            }
            equal(one(same, "SELECT v FROM " + table + " WHERE id = ?", 1L), sample[2]);
            equal(one(same, "SELECT v FROM " + table + " WHERE id = ?", 2L), null);
          }
        }
      });
    }
    check("type interval", connection -> equal(one(connection, "SELECT interval '3 days 04:00:05.5'"), new PGInterval(0, 0, 3, 4, 0, 5.5)));
    Object[][] arrays = {
      {"bigint", new Object[] {1L, null, 3L}, "int8"}, {"text", new Object[] {"a,b", null, "c\"d", "{}"}, "text"}, {"double precision", new Object[] {0.5, null}, "float8"},
      {"boolean", new Object[] {true, null, false}, "bool"}, {"uuid", new Object[] {uuid}, "uuid"}, {"integer", new Object[] {7}, "int4"},
    };
    for (Object[] sample : arrays) {
      check("type " + sample[0] + "[]", connection -> {
        Array array = connection.createArrayOf((String) sample[2], (Object[]) sample[1]);
        equal(((Array) one(connection, "SELECT ?::" + sample[0] + "[]", array)).getArray(), sample[1]);
      });
    }
  }

  static PGobject other(String type, String value) {
    try {
      PGobject object = new PGobject();
      object.setType(type);
      object.setValue(value);
      return object;
    } catch (SQLException error) {
      throw new IllegalArgumentException(error);
    }
  }

  static void parameters(Connection connection) throws Exception {
    execute(connection, "CREATE TABLE java_parameters (id bigint, name text, score double precision)");
    try (PreparedStatement insert = connection.prepareStatement("INSERT INTO java_parameters VALUES (?, ?, ?)")) {
      insert.setInt(1, 1);
      insert.setString(2, "it's");
      insert.setNull(3, Types.DOUBLE);
      equal(insert.executeUpdate(), 1);
    }
    equal(one(connection, "SELECT name FROM java_parameters WHERE id = ? AND name LIKE ? AND score IS NULL LIMIT ?", 1, "it%", 5), "it's");
    equal(one(connection, "SELECT count(*) FROM java_parameters WHERE id = ANY(?)", connection.createArrayOf("int8", new Object[] {1L, 2L})), 1L);
    equal(one(connection, "SELECT ?", "untyped"), "untyped");
  }

  static void prepared(Connection connection) throws Exception {
    try (PreparedStatement statement = connection.prepareStatement("SELECT ?::bigint * 2, ?::text")) {
      for (long number = 0; number < 10; number++) {
        statement.setLong(1, number);
        statement.setString(2, "x" + number);
        try (ResultSet rows = statement.executeQuery()) {
          rows.next();
          equal(rows.getLong(1), 2 * number);
          equal(rows.getString(2), "x" + number);
        }
      }
    }
  }

  static void batch(Connection connection) throws Exception {
    execute(connection, "DROP TABLE IF EXISTS java_batch", "CREATE TABLE java_batch (id bigint PRIMARY KEY, name text)");
    try (PreparedStatement insert = connection.prepareStatement("INSERT INTO java_batch VALUES (?, ?)")) {
      for (int id = 0; id < 100; id++) {
        insert.setLong(1, id);
        insert.setString(2, id % 3 == 0 ? null : "name " + id);
        insert.addBatch();
      }
      equal(insert.executeBatch().length, 100);
    }
    equal(one(connection, "SELECT count(*) FROM java_batch"), 100L);
    equal(one(connection, "SELECT count(name) FROM java_batch"), 66L);
  }

  static void generatedKeys(Connection connection) throws Exception {
    execute(connection, "CREATE TABLE java_keys (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text)");
    try (PreparedStatement insert = connection.prepareStatement("INSERT INTO java_keys (name) VALUES (?)", Statement.RETURN_GENERATED_KEYS)) {
      insert.setString(1, "one");
      insert.executeUpdate();
      try (ResultSet keys = insert.getGeneratedKeys()) {
        equal(keys.next(), true);
        equal(keys.getLong("id"), 1L);
      }
    }
  }

  static void large(Connection connection) throws Exception {
    connection.setAutoCommit(false);
    long count = 0;
    long total = 0;
    try (Statement statement = connection.createStatement()) {
      statement.setFetchSize(10_000);
      try (ResultSet rows = statement.executeQuery(LARGE)) {
        while (rows.next()) {
          count++;
          total += rows.getLong(1);
        }
      }
    }
    // The whole result would not fit into the heap that the runner gives.
    equal(count + " " + total, "1000000 500000500000");
    connection.commit();
  }

  static void errors(Connection connection) throws Exception {
    execute(connection, "CREATE TABLE java_errors (id bigint PRIMARY KEY)", "INSERT INTO java_errors VALUES (1)");
    String[][] cases = {
      {"23505", "INSERT INTO java_errors VALUES (1)"}, {"42P01", "SELECT * FROM no_such_table"}, {"22P02", "SELECT 'x'::bigint"}, {"42601", "SELEC 1"},
    };
    for (String[] one : cases) {
      equal(state(() -> {
        execute(connection, one[1]);
        return null;
      }), one[0]);
    }
    equal(one(connection, "SELECT 'on'"), "on");
  }

  static void cancel(Connection connection) throws Exception {
    try (Statement statement = connection.createStatement()) {
      RUNNER.submit(() -> {
        Thread.sleep(500);
        statement.cancel();
        return null;
      });
      long started = System.nanoTime();
      equal(state(() -> statement.executeQuery(LONG)), "57014");
      equal(System.nanoTime() - started < 5_000_000_000L, true);
    }
    equal(one(connection, "SELECT 'on'"), "on");
  }

  static void timeout(Connection connection) throws Exception {
    try (Statement statement = connection.createStatement()) {
      statement.setQueryTimeout(1);
      equal(state(() -> statement.executeQuery(LONG)), "57014");
    }
    equal(one(connection, "SELECT 'on'"), "on");
  }

  static void transactions(Connection connection) throws Exception {
    execute(connection, "CREATE TABLE java_transactions (id bigint PRIMARY KEY)");
    connection.setAutoCommit(false);
    execute(connection, "INSERT INTO java_transactions VALUES (1)");
    connection.commit();
    equal(state(() -> one(connection, "SELECT * FROM no_such_table")), "42P01");
    equal(state(() -> one(connection, "SELECT 1")), "25P02");
    connection.rollback();
    equal(one(connection, "SELECT count(*) FROM java_transactions"), 1L);
    connection.commit();
    execute(connection, "INSERT INTO java_transactions VALUES (2)");
    String outcome = state(() -> {
      connection.rollback();
      return null;
    });
    try (Connection after = connect()) {
      equal(outcome + one(after, "SELECT count(*) FROM java_transactions"), outcome.equals("0A000") ? "0A0002" : "no error1");
    }
  }

  static void readOnly(Connection connection) throws Exception {
    execute(connection, "CREATE TABLE java_read_only (id bigint PRIMARY KEY)");
    connection.setReadOnly(true);
    connection.setAutoCommit(false);
    equal(one(connection, "SHOW transaction_read_only"), "on");
    for (String text : new String[] {"INSERT INTO java_read_only VALUES (1)", "DELETE FROM java_read_only", "DROP TABLE java_read_only"}) {
      equal(state(() -> {
        execute(connection, text);
        return null;
      }), "25006");
      connection.rollback();
    }
    // A transaction that the driver begins for a COPY may write.
    equal(one(connection, "SHOW transaction_read_only"), "on");
    CopyManager manager = connection.unwrap(PGConnection.class).getCopyAPI();
    equal(state(() -> manager.copyIn("COPY java_read_only FROM STDIN", new StringReader("1\n"))), "25006");
    connection.rollback();
    // A stricter level is taken from those that only read; who writes gets it, or is told that it is not there.
    execute(connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ");
    equal(one(connection, "SELECT count(*) FROM java_read_only"), 0L);
    connection.commit();
    connection.setReadOnly(false);
    execute(connection, "INSERT INTO java_read_only VALUES (2)");
    connection.commit();
    String outcome = state(() -> {
      connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
      return null;
    });
    equal(List.of("no error", "0A000").contains(outcome), true);
    equal(one(connection, "SELECT count(*) FROM java_read_only"), 1L);
    connection.commit();
  }

  /** With `readOnlyMode=always` statements without a transaction only read, too. */
  static void readOnlySession(Connection connection) throws Exception {
    execute(connection, "CREATE TABLE java_read_only_session (id bigint PRIMARY KEY)");
    connection.setReadOnly(true);
    equal(state(() -> {
      execute(connection, "INSERT INTO java_read_only_session VALUES (1)");
      return null;
    }), "25006");
    equal(one(connection, "SELECT count(*) FROM java_read_only_session"), 0L);
    connection.setReadOnly(false);
    execute(connection, "INSERT INTO java_read_only_session VALUES (2)");
    equal(one(connection, "SELECT count(*) FROM java_read_only_session"), 1L);
  }

  static void savepoints(Connection connection) throws Exception {
    connection.setAutoCommit(false);
    equal(one(connection, "SELECT 'before'"), "before");
    Savepoint savepoint = connection.setSavepoint();
    equal(state(() -> one(connection, "SELECT * FROM no_such_table")), "42P01");
    connection.rollback(savepoint);
    equal(one(connection, "SELECT 'after'"), "after");
    connection.commit();
  }

  static void copy(Connection connection) throws Exception {
    execute(connection, "CREATE TABLE java_copy (id bigint, name text)");
    CopyManager manager = connection.unwrap(PGConnection.class).getCopyAPI();
    equal(manager.copyIn("COPY java_copy FROM STDIN WITH (FORMAT csv, HEADER)", new StringReader("id,name\n1,\"one, 1\"\n2,\n")), 2L);
    StringWriter out = new StringWriter();
    equal(manager.copyOut("COPY (SELECT * FROM java_copy ORDER BY id) TO STDOUT", out), 2L);
    equal(out.toString(), "1\tone, 1\n2\t\\N\n");
    equal(state(() -> manager.copyIn("COPY java_copy FROM STDIN", new java.io.ByteArrayInputStream("x\ty\n".getBytes(StandardCharsets.UTF_8)))), "22P02");
  }

  static List<String> column(ResultSet rows, String... names) throws SQLException {
    List<String> found = new ArrayList<>();
    while (rows.next()) {
      List<String> values = new ArrayList<>();
      for (String name : names) {
        values.add(rows.getString(name));
      }
      found.add(String.join(" ", values));
    }
    return found;
  }

  static void described(Connection connection) throws SQLException {
    execute(
        connection, "DROP VIEW IF EXISTS java_titles", "DROP TABLE IF EXISTS java_films",
        "CREATE TABLE java_films (id bigint PRIMARY KEY, title varchar(80) NOT NULL, price numeric(8, 2), tags text[], UNIQUE (title))",
        "CREATE INDEX java_films_price ON java_films USING btree (price)", "CREATE VIEW java_titles AS SELECT title FROM java_films");
  }

  static void tables(Connection connection) throws Exception {
    described(connection);
    var metadata = connection.getMetaData();
    ResultSet rows = metadata.getTables(null, "public", "java\\_films", new String[] {"TABLE"});
    equal(column(rows, "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE"), List.of("public java_films TABLE"));
    equal(column(metadata.getTables(null, "public", "java\\_titles", new String[] {"VIEW"}), "TABLE_NAME", "TABLE_TYPE"), List.of("java_titles VIEW"));
    rows = metadata.getColumns(null, "public", "java\\_films", null);
    equal(
        column(rows, "COLUMN_NAME", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "IS_NULLABLE"),
        List.of("id int8 19 0 NO", "title varchar 80 0 NO", "price numeric 8 2 YES", "tags _text 2147483647 0 YES"));
  }

  static void keys(Connection connection) throws Exception {
    described(connection);
    var metadata = connection.getMetaData();
    equal(column(metadata.getPrimaryKeys(null, "public", "java_films"), "COLUMN_NAME", "PK_NAME"), List.of("id java_films_pkey"));
    List<String> indexes = column(metadata.getIndexInfo(null, "public", "java_films", false, false), "INDEX_NAME", "COLUMN_NAME", "NON_UNIQUE");
    equal(indexes.contains("java_films_price price t"), true);
    equal(column(metadata.getImportedKeys(null, "public", "java_films"), "FK_NAME"), List.of());
  }

  static void schemas(Connection connection) throws Exception {
    var metadata = connection.getMetaData();
    equal(column(metadata.getSchemas(), "TABLE_SCHEM").contains("public"), true);
    equal(column(metadata.getCatalogs(), "TABLE_CAT").contains(System.getenv("PGDATABASE")), true);
    equal(column(metadata.getTypeInfo(), "TYPE_NAME").contains("int8"), true);
    equal(column(metadata.getFunctions(null, null, "upper"), "FUNCTION_NAME").contains("upper"), true);
    column(metadata.getTableTypes(), "TABLE_TYPE");
    column(metadata.getTablePrivileges(null, "public", "%"), "TABLE_NAME");
  }

  static void resultMetaData(Connection connection) throws Exception {
    described(connection);
    try (PreparedStatement statement = connection.prepareStatement("SELECT id, title, price AS cost FROM java_films WHERE id = ?")) {
      ResultSetMetaData metadata = statement.getMetaData();
      equal(metadata.getColumnTypeName(1) + " " + metadata.getColumnTypeName(2) + " " + metadata.getColumnTypeName(3), "int8 varchar numeric");
      equal(metadata.getPrecision(3) + " " + metadata.getScale(3), "8 2");
      equal(statement.getParameterMetaData().getParameterTypeName(1), "int8");
    }
    // What an updatable result needs: the table of each column.
    try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery("SELECT id, title FROM java_films")) {
      equal(((org.postgresql.PGResultSetMetaData) rows.getMetaData()).getBaseTableName(1), "java_films");
    }
  }
}
