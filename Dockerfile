# One image with all commands: tidelog-quorum, tidelog-node, tidelog-server and tidelog.
# Give PYTHON_IMAGE with a digest for a build that gives the same image every time.
ARG PYTHON_IMAGE=python:3.12-slim

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 SOURCE_DATE_EPOCH=1735689600
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY deploy/constraints.txt ./
RUN pip install --constraint constraints.txt cython hatch-fancy-pypi-readme hatchling setuptools \
    && python -m venv /opt/sbom \
    && /opt/sbom/bin/pip install --constraint constraints.txt --only-binary :all: cyclonedx-bom
COPY LICENSE README.md hatch_build.py pyproject.toml ./
COPY client client
COPY quorum quorum
COPY node node
# The build goes without compiled modules where there is no compiler; an image without them is a mistake.
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && test "$(find client quorum node -name '*.pyx' | wc -l)" = "$(find client quorum node -name '*.so' | wc -l)"
RUN python -m venv /opt/tidelog \
    && /opt/tidelog/bin/pip install --constraint constraints.txt --only-binary :all: "$(echo /wheels/*.whl)[cli,node,quorum]" \
    && /opt/tidelog/bin/pip check \
    && /opt/tidelog/bin/pip uninstall --yes pip
# Only what runs goes into the image. hdrhistogram needs pbr, and pbr setuptools, for its own build alone. The bytecode is
# as old as its source by definition, so that imports do not read sources to compare them.
FROM build AS trimmed
RUN packages=$(echo /opt/tidelog/lib/python3.*/site-packages) \
    && pip --python /opt/tidelog/bin/python uninstall --yes pbr setuptools \
    && find "$packages" -depth -type d '(' -name tests -o -name test -o -name __pycache__ ')' -exec rm -r {} + \
    && find "$packages" -type f '(' -name '*.pyi' -o -name '*.pyx' -o -name '*.px[di]' -o -name '*.[ch]' ')' -delete \
    && find "$packages" -type f -name '*.so' -exec strip --strip-unneeded {} + \
    && find /opt/tidelog/bin -type f ! -name 'tidelog*' -delete \
    && rm -r /opt/tidelog/include \
    && /opt/tidelog/bin/python -m compileall -q --invalidation-mode unchecked-hash "$packages" \
    && /opt/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
        --output-file /opt/tidelog/sbom.cdx.json /opt/tidelog/bin/python

FROM ${PYTHON_IMAGE}
ENV PATH=/opt/tidelog/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
RUN groupadd --gid 10001 tidelog \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin tidelog \
    && install --directory --owner 10001 --group 10001 --mode 0750 /var/lib/tidelog
COPY --from=trimmed /opt/tidelog /opt/tidelog
COPY deploy/docker/healthcheck.py /opt/tidelog/bin/tidelog-healthcheck
COPY deploy/docker/rack.py /opt/tidelog/bin/tidelog-rack
USER 10001:10001
WORKDIR /var/lib/tidelog
EXPOSE 9092 9093 9094 9404
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s --retries=3 CMD ["tidelog-healthcheck", "/livez"]
CMD ["tidelog", "--help"]
# Behind everything else, so that another revision of the same tree takes all layers from the cache.
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Tidelog" \
    org.opencontainers.image.description="A distributed, replicated log with Apache Kafka's semantics, in Python" \
    org.opencontainers.image.source="https://github.com/tidelog/tidelog" \
    org.opencontainers.image.documentation="https://tidelog.github.io/tidelog/" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
