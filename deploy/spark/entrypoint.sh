#!/bin/bash
# Run the part of Spark that its Kubernetes scheduler names: "driver" with arguments of spark-submit, or "executor".
# Run any other command as it is.
set -euo pipefail

run_driver() {
  exec spark-submit --deploy-mode client \
    --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
    --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" "$@"
}

run_executor() {
  local name options=()
  for name in $(compgen -e SPARK_JAVA_OPT_ | sort --version-sort); do options+=("${!name}"); done
  exec "$JAVA_HOME/bin/java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -classpath "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
}

case ${1:-} in
  driver) shift; run_driver "$@" ;;
  executor) run_executor ;;
  *) exec "$@" ;;
esac
