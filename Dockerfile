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
RUN pip install --constraint constraints.txt cython hatch-fancy-pypi-readme hatchling setuptools
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

FROM ${PYTHON_IMAGE}
ENV PATH=/opt/tidelog/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
RUN groupadd --gid 10001 tidelog \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin tidelog \
    && install --directory --owner 10001 --group 10001 --mode 0750 /var/lib/tidelog
COPY --from=build /opt/tidelog /opt/tidelog
USER 10001:10001
WORKDIR /var/lib/tidelog
EXPOSE 9092 9093 9094 9404
STOPSIGNAL SIGTERM
CMD ["tidelog", "--help"]
