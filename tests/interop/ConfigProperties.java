import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.regex.Pattern;

/**
 * Prints every option that a bundle of Apache Hudi declares: its name, its other names, its default.
 *
 * <p>An option is a ConfigProperty in a static field, or in a field of a Scala object. A line that
 * begins with "constant" is a text that looks like the name of an option and is declared as none.
 */
public class ConfigProperties {
  private static final Pattern NAME = Pattern.compile("hoodie\\.[a-z0-9_.]*[a-z0-9_]");
  private static final String PACKAGE = "org/apache/hudi/";

  private final Class<?> property = Class.forName("org.apache.hudi.common.config.ConfigProperty");
  private final Map<String, String> options = new TreeMap<>();
  private final Set<String> constants = new TreeSet<>();

  private ConfigProperties() throws ClassNotFoundException {}

  public static void main(String[] arguments) throws Exception {
    ConfigProperties found = new ConfigProperties();
    try (JarFile jar = new JarFile(arguments[0])) {
      for (JarEntry entry : Collections.list(jar.entries())) {
        found.readEntry(entry.getName());
      }
    }
    found.options.values().forEach(System.out::println);
    found.constants.removeAll(found.options.keySet());
    found.constants.forEach(name -> System.out.println("constant\t" + name));
  }

  private void readEntry(String name) throws Exception {
    boolean isShaded = name.startsWith(PACKAGE + "org/") || name.startsWith(PACKAGE + "com/");
    if (!name.startsWith(PACKAGE) || isShaded || !name.endsWith(".class")) {
      return;
    }
    String type = name.substring(0, name.length() - ".class".length()).replace('/', '.');
    Field[] fields;
    try {
      fields = Class.forName(type, false, getClass().getClassLoader()).getDeclaredFields();
    } catch (LinkageError e) {
      return; // It is for a part of Spark or Hive that is not here.
    }
    for (Field field : fields) {
      readField(field);
    }
  }

  private void readField(Field field) throws Exception {
    boolean isStatic = Modifier.isStatic(field.getModifiers());
    if (field.getType() != property && !(isStatic && field.getType() == String.class)) {
      return;
    }
    Object value;
    try {
      field.setAccessible(true);
      value = field.get(isStatic ? null : field.getDeclaringClass().getField("MODULE$").get(null));
    } catch (NoSuchFieldException | LinkageError e) {
      return;
    }
    if (value instanceof String text && NAME.matcher(text).matches()) {
      constants.add(text);
    } else if (property.isInstance(value)) {
      readOption(value);
    }
  }

  private void readOption(Object option) throws Exception {
    String name = (String) property.getMethod("key").invoke(option);
    List<String> cells = new ArrayList<>(List.of("option", name));
    List<?> others = (List<?>) property.getMethod("getAlternatives").invoke(option);
    cells.add(String.join(" ", others.stream().map(Object::toString).toList()));
    if ((Boolean) property.getMethod("hasDefaultValue").invoke(option)) {
      cells.add(String.valueOf(property.getMethod("defaultValue").invoke(option)).replaceAll("\\s", " "));
    }
    options.put(name, String.join("\t", cells));
  }
}
