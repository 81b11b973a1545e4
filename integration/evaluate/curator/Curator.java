import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.KeeperException;

/** Sections by Curator's lock, with values as znodes: Curator SERVER SESSION_MS HEED. */
class Curator extends Sections {
  private final CuratorFramework zk;
  private final boolean heed;
  private final AtomicLong breaks = new AtomicLong(); // of the connection

  Curator(String server, int session, boolean heed) throws Exception {
    this.heed = heed;
    zk = CuratorFrameworkFactory.newClient(server, session, session, new ExponentialBackoffRetry(100, 10, 1000));
    zk.getConnectionStateListenable().addListener((client, state) -> {
      if (state == ConnectionState.SUSPENDED || state == ConnectionState.LOST) breaks.incrementAndGet();
    });
    zk.start();
    if (!zk.blockUntilConnected(60, TimeUnit.SECONDS)) throw new IllegalStateException("no connection to " + server);
  }

  private static String name(String key) {
    return URLEncoder.encode(key, StandardCharsets.UTF_8).replace("+", "%20");
  }

  @Override
  Held enter(String key) throws Exception {
    InterProcessMutex mutex = new InterProcessMutex(zk, "/curator/lock/" + name(key));
    long before = breaks.get();
    mutex.acquire();
    return new Znode(mutex, "/curator/value/" + name(key), before);
  }

  private class Znode implements Held {
    private final InterProcessMutex mutex;
    private final String path;
    private final long before;

    Znode(InterProcessMutex mutex, String path, long before) {
      this.mutex = mutex;
      this.path = path;
      this.before = before;
    }

    private void check() throws Lost {
      if (!heed || breaks.get() == before) return;
      try {
        mutex.release();
      } catch (Exception e) {
        // its node is gone, or goes with the session
      }
      throw new Lost("the connection was suspended or lost");
    }

    @Override
    public byte[] get() throws Exception {
      check();
      try {
        return zk.getData().forPath(path);
      } catch (KeeperException.NoNodeException e) {
        return null;
      }
    }

    @Override
    public void put(byte[] value) throws Exception {
      check();
      try {
        zk.setData().forPath(path, value);
      } catch (KeeperException.NoNodeException e) {
        zk.create().creatingParentsIfNeeded().forPath(path, value);
      }
    }

    @Override
    public void leave() throws Exception {
      mutex.release();
    }
  }

  public static void main(String[] args) throws Exception {
    new Curator(args[0], Integer.parseInt(args[1]), Boolean.parseBoolean(args[2])).serve();
  }
}
