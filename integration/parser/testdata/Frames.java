import java.io.*;
import java.lang.reflect.*;
import java.nio.ByteBuffer;
import java.util.*;

import io.netty.buffer.*;
import io.netty.channel.Channel;
import io.netty.channel.embedded.EmbeddedChannel;
import org.apache.cassandra.cql3.QueryOptions;
import org.apache.cassandra.utils.ByteBufferUtil;

/**
 * Decodes requests, one envelope a line in hexadecimal digits, with Cassandra's own decoder, and answers each with one line: what it
 * reads of it, or "refused".
 */
public class Frames {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err); // what Cassandra says at its start
        org.apache.cassandra.config.DatabaseDescriptor.clientInitialization();
        org.apache.cassandra.config.DatabaseDescriptor.setNativeTransportMaxFrameSize(1 << 20);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; )
            out.println(answer(ByteBufferUtil.hexToBytes(line)));
        System.exit(0); // Cassandra leaves threads
    }

    static String answer(ByteBuffer bytes) {
        try {
            Object decoder = Class.forName("org.apache.cassandra.transport.Envelope$Decoder").getDeclaredConstructor().newInstance();
            Method decode = decoder.getClass().getDeclaredMethod("decode", ByteBuf.class);
            decode.setAccessible(true);
            Object envelope = decode.invoke(decoder, Unpooled.wrappedBuffer(bytes));
            Method decodeMessage = null;
            for (Method m : Class.forName("org.apache.cassandra.transport.Message$Decoder").getDeclaredMethods())
                if (m.getName().equals("decodeMessage"))
                    decodeMessage = m;
            decodeMessage.setAccessible(true);
            Object message = decodeMessage.invoke(null, (Channel) new EmbeddedChannel(), envelope);
            StringBuilder said = new StringBuilder();
            said.append("text=").append(text(message)).append(" ids=").append(shown(Fields.of(message, "statementId")));
            Object options = Fields.of(message, "options");
            if (options == null)
                return said + " keyspace=" + shown(Fields.of(message, "keyspace"));
            return said + options((QueryOptions) options);
        } catch (Throwable e) {
            return "refused";
        }
    }

    static String text(Object message) throws Exception {
        Object batch = Fields.of(message, "queryOrIdList");
        return shown(batch == null ? Fields.of(message, "query") : batch).replace(' ', '_');
    }

    static String options(QueryOptions o) throws Exception {
        StringJoiner values = new StringJoiner(",", "[", "]");
        Object unordered = Fields.of(o, "wrapped"); // of values bound by name
        for (ByteBuffer v : unordered == null ? o.getValues() : ((QueryOptions) unordered).getValues())
            values.add(v == null ? "null" : ByteBufferUtil.bytesToHex(v));
        Method specific = QueryOptions.class.getDeclaredMethod("getSpecificOptions");
        specific.setAccessible(true);
        Object s = specific.invoke(o);
        return " consistency=" + o.getConsistency() + " values=" + values + " names=" + shown(Fields.of(o, "names")).replace(" ", "") + " page=" + o.getPageSize() + " serial=" + o.getSerialConsistency()
               + " timestamp=" + unset(Fields.of(s, "timestamp")) + " keyspace=" + shown(o.getKeyspace()) + " now=" + unset(Fields.of(s, "nowInSeconds"));
    }

    static String unset(Object n) {
        return ((Long) n) == Long.MIN_VALUE ? "-" : n.toString();
    }

    static String shown(Object o) {
        return o == null ? "-" : o.toString();
    }
}
