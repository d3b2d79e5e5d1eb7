package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Collects a client's settings. It adds no authentication: the listeners of the tests are plain text. */
public class KafkaConfigUpdater {
    private final Map<String, Object> settings;

    public KafkaConfigUpdater(String module, scala.collection.immutable.Map<String, Object> settings) {
        this.settings = new HashMap<>(CollectionConverters.asJava(settings));
    }

    public KafkaConfigUpdater set(String key, Object value) {
        settings.put(key, value);
        return this;
    }

    public KafkaConfigUpdater setIfUnset(String key, Object value) {
        settings.putIfAbsent(key, value);
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded(Option<?> clusterConfig) {
        return this;
    }

    public Map<String, Object> build() {
        return settings;
    }
}
