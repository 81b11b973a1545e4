import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;

import org.antlr.runtime.*;
import org.apache.cassandra.cql3.*;
import org.apache.cassandra.cql3.statements.ModificationStatement;

/**
 * Reads statements, one a line in base64, and answers each with one line: "LEXERR", or the places of its tokens, a tab, and
 * "PARSEERR" or class|names|bind markers|restrictions|conditional, USING {children}, as Cassandra's own lexer and parser have it.
 */
public class Oracle {
    public static void main(String[] args) throws Exception {
        // What Cassandra says at its start goes to standard error.
        PrintStream out = new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false, "UTF-8");
        System.setOut(System.err);
        org.apache.cassandra.config.DatabaseDescriptor.clientInitialization();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.ISO_8859_1));
        for (String line; (line = in.readLine()) != null; )
            out.println(answer(new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8)));
        out.flush();
        System.exit(0); // Cassandra leaves threads
    }

    static String answer(String text) {
        String tokens;
        try {
            tokens = tokens(text);
        } catch (Throwable e) {
            return "LEXERR";
        }
        try {
            ErrorCollector errors = new ErrorCollector(text);
            CqlParser parser = new CqlParser(new CommonTokenStream(lexer(text, errors)));
            parser.addErrorListener(errors);
            CQLStatement.Raw statement = parser.query();
            errors.throwFirstSyntaxError();
            StringBuilder said = new StringBuilder();
            statement(statement, said);
            return tokens + "\t" + said.toString().replaceAll("[\n\t\r]", " ");
        } catch (Throwable e) {
            return tokens + "\tPARSEERR";
        }
    }

    static CqlLexer lexer(String text, ErrorCollector errors) {
        CqlLexer lexer = new CqlLexer(new ANTLRStringStream(text));
        lexer.addErrorListener(errors);
        return lexer;
    }

    static String tokens(String text) throws Exception {
        ErrorCollector errors = new ErrorCollector(text);
        CqlLexer lexer = lexer(text, errors);
        StringJoiner places = new StringJoiner(" ");
        for (Token t = lexer.nextToken(); t.getType() != Token.EOF; t = lexer.nextToken()) {
            CommonToken token = (CommonToken) t;
            if (t.getChannel() == Token.DEFAULT_CHANNEL)
                places.add(token.getStartIndex() + "-" + (token.getStopIndex() + 1));
        }
        errors.throwFirstSyntaxError();
        return places.toString();
    }

    static void statement(Object statement, StringBuilder said) throws Exception {
        String type = statement.getClass().getName();
        said.append(type.substring(type.lastIndexOf('.') + 1)).append('|');
        said.append(names(statement)).append('|');
        Object markers = Fields.of(statement, "bindVariables");
        said.append(markers == null ? 0 : ((VariableSpecifications) markers).getBindVariables().size()).append('|');
        said.append(restrictions(statement)).append('|');
        if (statement instanceof ModificationStatement.Parsed)
            said.append(!((ModificationStatement.Parsed) statement).getConditions().isEmpty()
                        || (Boolean) Fields.of(statement, "ifNotExists") || (Boolean) Fields.of(statement, "ifExists"));
        Object using = Fields.of(statement, "attrs");
        if (using instanceof Attributes.Raw)
            said.append(((Attributes.Raw) using).timestamp != null ? " ts" : "").append(((Attributes.Raw) using).timeToLive != null ? " ttl" : "");
        Object children = Fields.of(statement, "parsedStatements");
        if (children != null)
            for (Object child : (List<?>) children) {
                said.append(" {");
                statement(child, said);
                said.append("}");
            }
    }

    static String names(Object statement) throws Exception {
        StringJoiner names = new StringJoiner(",");
        for (String name : new String[]{ "qualifiedName", "tableName", "viewName", "name", "typeName", "keyspaceName", "keyspace", "indexName", "functionName", "aggregateName" }) {
            Object value = Fields.of(statement, name);
            if (value instanceof QualifiedName) {
                QualifiedName q = (QualifiedName) value;
                names.add(name + "=" + (q.hasKeyspace() ? q.getKeyspace() : "") + "." + q.getName());
            } else if (value != null && !(value instanceof String && name.equals("name")))
                names.add(name + "=" + value);
        }
        return names.toString();
    }

    static String restrictions(Object statement) throws Exception {
        StringJoiner all = new StringJoiner(" & ");
        WhereClause where = (WhereClause) Fields.of(statement, "whereClause");
        if (where != null) {
            for (Relation r : where.relations)
                all.add(restriction(r));
            for (int i = 0; i < where.expressions.size(); i++)
                all.add("~");
        }
        List<?> columns = (List<?>) Fields.of(statement, "columnNames");
        List<?> values = (List<?>) Fields.of(statement, "columnValues");
        for (int i = 0; columns != null && i < columns.size(); i++)
            all.add(columns.get(i) + "=" + (i < values.size() ? value((Term.Raw) values.get(i)) : "-"));
        return all.toString();
    }

    static String restriction(Relation r) throws Exception {
        if (r instanceof SingleColumnRelation && r.isEQ() && Fields.of(r, "mapKey") == null)
            return ((SingleColumnRelation) r).getEntity() + "=" + value(r.getValue());
        if (!(r instanceof SingleColumnRelation && r.isIN()))
            return "~";
        StringBuilder in = new StringBuilder(((SingleColumnRelation) r).getEntity() + " IN ");
        if (r.getInValues() == null)
            return in.append(value(r.getValue())).toString();
        for (Term.Raw v : r.getInValues())
            in.append(value(v)).append(';');
        return in.toString();
    }

    static String value(Term.Raw t) {
        if (t instanceof Constants.Literal)
            return t.getText();
        return t instanceof AbstractMarker.Raw ? "?" : "*";
    }
}
