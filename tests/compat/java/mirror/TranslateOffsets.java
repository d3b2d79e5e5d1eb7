import java.time.Duration;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** Prints what Kafka's clients read from a mirror's internal topics: TranslateOffsets SERVERS SOURCE GROUP. */
public final class TranslateOffsets {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        try (MirrorClient client = new MirrorClient(settings)) {
            System.out.println("upstream " + String.join(",", client.upstreamClusters()));
            System.out.println("hops " + client.replicationHops(arguments[1]));
            System.out.println("heartbeats " + String.join(",", client.heartbeatTopics()));
            System.out.println("checkpoints " + String.join(",", client.checkpointTopics()));
            System.out.println("remote " + String.join(",", client.remoteTopics(arguments[1])));
        }
        Map<TopicPartition, OffsetAndMetadata> found = RemoteClusterUtils.translateOffsets(
            settings, arguments[1], arguments[2], Duration.ofSeconds(30));
        found.forEach((partition, offset) -> System.out.println("offset " + partition + " " + offset.offset()));
    }
}
