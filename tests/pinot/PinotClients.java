import java.io.File;
import java.net.URI;
import java.sql.DriverManager;
import java.util.List;
import org.apache.pinot.client.ConnectionFactory;
import org.apache.pinot.common.restlet.resources.StartReplaceSegmentsRequest;
import org.apache.pinot.common.utils.FileUploadDownloadClient;
import org.apache.pinot.common.utils.http.HttpClient;
import org.apache.pinot.spi.config.TableConfigs;
import org.apache.pinot.spi.config.table.TableConfig;
import org.apache.pinot.spi.config.table.TableType;
import org.apache.pinot.spi.data.FieldSpec.DataType;
import org.apache.pinot.spi.data.Schema;
import org.apache.pinot.spi.utils.builder.TableConfigBuilder;

/** What a user of Pinot's Java clients does: makes a table, pushes a segment, asks for its rows. */
public class PinotClients {
  public static void main(String[] arguments) throws Exception {
    URI controller = new URI(arguments[1]);
    String table = arguments[2];
    try {
      switch (arguments[0]) {
        case "add" -> add(controller, table);
        case "push" -> push(controller, table, new File(arguments[3]));
        case "client" -> askClient(controller, table, arguments[3]);
        case "jdbc" -> askDriver(controller, arguments[3]);
        default -> throw new IllegalArgumentException(arguments[0]);
      }
    } catch (Throwable error) {
      error.printStackTrace();
      System.exit(1);
    }
    System.exit(0);  // The clients leave threads behind, which would keep the program.
  }

  /** As `pinot-admin AddTable` does: schema and table in one document. */
  private static void add(URI controller, String table) throws Exception {
    Schema schema = new Schema.SchemaBuilder().setSchemaName(table)
        .addSingleValueDimension("id", DataType.LONG).addSingleValueDimension("city", DataType.STRING)
        .addMetric("snapshot", DataType.LONG).build();
    TableConfig offline = new TableConfigBuilder(TableType.OFFLINE).setTableName(table).setNumReplicas(1).build();
    String document = new TableConfigs(table, schema, offline, null).toJsonString();
    System.out.println(HttpClient.getInstance()
        .sendJsonPostRequest(controller.resolve("/tableConfigs"), document).getResponse());
  }

  /** The protocol of consistent push, with Pinot's own client for uploads. */
  private static void push(URI controller, String table, File segment) throws Exception {
    String name = segment.getName();
    try (FileUploadDownloadClient client = new FileUploadDownloadClient()) {
      URI start = FileUploadDownloadClient.getStartReplaceSegmentsURI(controller, table, "OFFLINE", false);
      String entry = client.startReplaceSegments(start, new StartReplaceSegmentsRequest(List.of(), List.of(name)), null)
          .getResponse().replaceAll(".*:\"|\"}", "");
      URI upload = new URI(FileUploadDownloadClient.getUploadSegmentURI(controller) + "?tableName=" + table);
      client.uploadSegment(upload, name, segment, table, TableType.OFFLINE, false, true);
      URI end = FileUploadDownloadClient.getEndReplaceSegmentsURI(controller, table, "OFFLINE", entry);
      System.out.println(client.endReplaceSegments(end, 60_000, null).getStatusCode());
    }
  }

  /** The Java client, which asks the controller for the brokers of the table. */
  private static void askClient(URI controller, String table, String sql) throws Exception {
    var connection = ConnectionFactory.fromController("http", controller.getHost(), controller.getPort());
    var rows = connection.execute(table, sql).getResultSet(0);
    for (int row = 0; row < rows.getRowCount(); row++) {
      System.out.println(rows.getLong(row, 0) + " " + rows.getString(row, 1));
    }
  }

  /** JDBC: the driver finds the brokers of the tenant. */
  private static void askDriver(URI controller, String sql) throws Exception {
    Class.forName("org.apache.pinot.client.PinotDriver");
    String url = "jdbc:pinot://" + controller.getHost() + ":" + controller.getPort();
    try (var connection = DriverManager.getConnection(url); var statement = connection.createStatement()) {
      var rows = statement.executeQuery(sql);
      while (rows.next()) {
        System.out.println(rows.getLong("id") + " " + rows.getString("city"));
      }
      var columns = connection.getMetaData().getURL();
      System.out.println(columns != null);
    }
  }
}
