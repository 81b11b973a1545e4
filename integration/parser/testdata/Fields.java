import java.lang.reflect.Field;

/** Reads what Cassandra's classes keep to themselves. */
class Fields {
    /** Returns a private field of an object, or of what its class extends; null if there is none. */
    static Object of(Object o, String name) throws Exception {
        for (Class<?> c = o.getClass(); c != null; c = c.getSuperclass())
            try {
                Field f = c.getDeclaredField(name);
                f.setAccessible(true);
                return f.get(o);
            } catch (NoSuchFieldException e) {
                // perhaps in the class above
            }
        return null;
    }
}
