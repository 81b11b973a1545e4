package music;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.CqlSessionBuilder;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.config.ProgrammaticDriverConfigLoaderBuilder;
import com.datastax.oss.driver.api.core.context.DriverContext;
import com.datastax.oss.driver.api.core.session.ProgrammaticArguments;
import com.datastax.oss.driver.internal.core.context.DefaultDriverContext;
import com.datastax.oss.driver.internal.core.context.DefaultNettyOptions;
import com.datastax.oss.driver.internal.core.context.NettyOptions;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundHandlerAdapter;
import io.netty.channel.ChannelPromise;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;

/** Sessions that record every address that they connect to, a line each, in the file named by MUSIC_CONNECTS. */
final class Recorded extends CqlSessionBuilder {
  private Recorded() {}

  /** Settings in a version of the protocol, V4 or V5; in V5 compressed. */
  static ProgrammaticDriverConfigLoaderBuilder settings(String version) {
    ProgrammaticDriverConfigLoaderBuilder config = DriverConfigLoader.programmaticBuilder()
        .withString(DefaultDriverOption.PROTOCOL_VERSION, version)
        .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(20))
        .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, Duration.ofSeconds(20))
        .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, Duration.ofSeconds(20))
        .withDuration(DefaultDriverOption.CONNECTION_SET_KEYSPACE_TIMEOUT, Duration.ofSeconds(20))
        .withDuration(DefaultDriverOption.METADATA_SCHEMA_REQUEST_TIMEOUT, Duration.ofSeconds(20))
        .withDuration(DefaultDriverOption.METADATA_SCHEMA_WINDOW, Duration.ZERO);
    return version.equals("V5") ? config.withString(DefaultDriverOption.PROTOCOL_COMPRESSION, "lz4") : config;
  }

  /** Connects to one contact point; keyspace may be null. */
  static CqlSession connect(String host, String keyspace, DriverConfigLoader config) {
    CqlSessionBuilder builder = new Recorded().addContactPoint(new InetSocketAddress(host, 9042))
        .withLocalDatacenter("dc1").withConfigLoader(config);
    return (keyspace == null ? builder : builder.withKeyspace(keyspace)).build();
  }

  @Override
  protected DriverContext buildContext(DriverConfigLoader config, ProgrammaticArguments arguments) {
    return new DefaultDriverContext(config, arguments) {
      @Override
      protected NettyOptions buildNettyOptions() {
        return new DefaultNettyOptions(this) {
          @Override
          public void afterChannelInitialized(Channel channel) {
            channel.pipeline().addFirst(new Noting());
          }
        };
      }
    };
  }

  /** Records the address that a channel connects to. */
  private static final class Noting extends ChannelOutboundHandlerAdapter {
    @Override
    public void connect(ChannelHandlerContext context, SocketAddress remote, SocketAddress local, ChannelPromise promise) throws Exception {
      note((InetSocketAddress) remote);
      super.connect(context, remote, local, promise);
    }

    private static void note(InetSocketAddress remote) {
      String path = System.getenv("MUSIC_CONNECTS");
      if (path == null) {
        return;
      }
      String line = remote.getAddress().getHostAddress() + ":" + remote.getPort() + "\n";
      try {
        Files.writeString(Path.of(path), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }
}
