package org.apache.spark.kafka010;

import java.util.Map;
import org.apache.spark.SparkConf;
import scala.Option;

/** There are no delegation tokens. */
public class KafkaTokenUtil$ {
    public static final KafkaTokenUtil$ MODULE$ = new KafkaTokenUtil$();

    public Option<Object> findMatchingTokenClusterConfig(SparkConf configuration, String bootstrapServers) {
        return Option.empty();
    }

    public boolean needTokenUpdate(Map<String, Object> settings, Option<?> clusterConfig) {
        return false;
    }
}
