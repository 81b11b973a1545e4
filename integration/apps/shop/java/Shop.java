import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import music.Music;

/** Reserves pieces of stock.left, many at once, and prints how many it has promised. Arguments: host, how, workers, reservations of each worker. */
public final class Shop {
  private static final String ITEM = "lamp";

  private final CqlSession session;
  private final PreparedStatement read;

  private Shop(CqlSession session) {
    this.session = session;
    read = session.prepare("SELECT left FROM shop.stock WHERE item = ?");
  }

  private int left() { return session.execute(read.bind(ITEM)).one().getInt(0); }

  private Callable<Object> plain() {
    PreparedStatement write = session.prepare("UPDATE shop.stock SET left = ? WHERE item = ?");
    return () -> session.execute(write.bind(left() - 1, ITEM));
  }

  private Callable<Object> conditional() {
    PreparedStatement write = session.prepare("UPDATE shop.stock SET left = ? WHERE item = ? IF left = ?");
    return () -> {
      while (true) {
        int seen = left();
        if (session.execute(write.bind(seen - 1, ITEM, seen)).wasApplied()) return true;
      }
    };
  }

  private Callable<Object> locked() {
    PreparedStatement held = session.prepare("SELECT left FROM shop.stock WHERE item = ? USING LOCK ?");
    PreparedStatement write = session.prepare("UPDATE shop.stock USING LOCK ? SET left = ? WHERE item = ?");
    return () -> {
      try (Music.Lock lock = Music.hold(session, new Music.Ask("shop.stock").key("item", ITEM).wait(Duration.ofMinutes(1)))) {
        int seen = session.execute(lock.bind(held, ITEM)).one().getInt(0);
        return session.execute(lock.bind(write, seen - 1, ITEM));
      }
    };
  }

  public static void main(String[] args) throws Exception {
    DriverConfigLoader config = DriverConfigLoader.programmaticBuilder()
        .withString(DefaultDriverOption.REQUEST_CONSISTENCY, "QUORUM").withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(30)).build();
    try (CqlSession session = CqlSession.builder().addContactPoint(new InetSocketAddress(args[0], 9042)).withLocalDatacenter("dc1").withConfigLoader(config).build()) {
      Shop shop = new Shop(session);
      Callable<Object> reserve = switch (args[1]) {
        case "plain" -> shop.plain();
        case "if" -> shop.conditional();
        default -> shop.locked();
      };
      AtomicInteger promised = new AtomicInteger();
      ExecutorService pool = Executors.newFixedThreadPool(Integer.parseInt(args[2]));
      for (int worker = 0; worker < Integer.parseInt(args[2]); worker++) {
        pool.execute(() -> {
          for (int i = 0; i < Integer.parseInt(args[3]); i++) {
            try {
              reserve.call();
              promised.incrementAndGet();
            } catch (Exception e) {
              System.err.println(e);
            }
          }
        });
      }
      pool.shutdown();
      pool.awaitTermination(10, TimeUnit.MINUTES);
      System.out.println(promised);
    }
  }
}
