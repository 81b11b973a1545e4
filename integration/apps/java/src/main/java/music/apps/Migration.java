package music.apps;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.datastax.oss.driver.api.core.CqlSession;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.cognitor.cassandra.migration.Database;
import org.cognitor.cassandra.migration.MigrationConfiguration;
import org.cognitor.cassandra.migration.MigrationException;
import org.cognitor.cassandra.migration.MigrationRepository;
import org.cognitor.cassandra.migration.MigrationTask;

/** Migrates a keyspace with cassandra-migration, also many at once, of whom one takes the lead. Arguments: setup or run, host, keyspace. */
public final class Migration {
  private final String host;
  private final String keyspace;

  private Migration(String host, String keyspace) {
    this.host = host;
    this.keyspace = keyspace;
  }

  /** Migrates by the scripts of a folder, as a process of its own would. */
  private void migrate(String scripts) {
    try (Database database = new Database(Tests.session(host, keyspace), new MigrationConfiguration().withKeyspaceName(keyspace))) {
      new MigrationTask(database, new MigrationRepository("scripts/" + scripts), true).migrate();
    }
  }

  private long count(CqlSession session, String query) { return session.execute(query).one().getLong(0); }

  private void tests(CqlSession session) {
    Tests.test("nothing to do", () -> {
      migrate("first");
      assertThat(count(session, "SELECT count(*) FROM schema_migration WHERE applied_successful = true")).isEqualTo(1);
    });
    Tests.test("four migrate at once", () -> {
      ExecutorService pool = Executors.newFixedThreadPool(4);
      List<Future<?>> all = new ArrayList<>();
      for (int i = 0; i < 4; i++) all.add(pool.submit(() -> migrate("more")));
      for (Future<?> one : all) one.get();
      pool.shutdown();
      assertThat(count(session, "SELECT count(*) FROM schema_migration WHERE applied_successful = true")).isEqualTo(3);
    });
    Tests.test("what the scripts wrote", () -> {
      assertThat(session.execute("SELECT surname FROM people WHERE name = 'anna'").one().getString(0)).isEqualTo("a");
      assertThat(session.execute("SELECT person FROM orders WHERE id = 1").one().getString(0)).isEqualTo("anna");
    });
    Tests.test("a broken script fails and is recorded", () -> {
      assertThatThrownBy(() -> migrate("broken")).isInstanceOf(MigrationException.class);
      assertThat(count(session, "SELECT count(*) FROM schema_migration WHERE applied_successful = false")).isEqualTo(1);
    });
    Tests.test("nobody keeps the lead", () -> assertThat(count(session, "SELECT count(*) FROM schema_migration_leader")).isZero());
  }

  public static void main(String[] args) {
    Migration migration = new Migration(args[1], args[2]);
    if (args[0].equals("setup")) {
      migration.migrate("first");
    } else {
      try (CqlSession session = Tests.session(args[1], args[2])) {
        migration.tests(session);
      }
    }
    System.exit(0);
  }
}
