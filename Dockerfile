FROM python:3.11-slim AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/comfy-batch
WORKDIR /src

# The dependencies first: they change more rarely than the program.
COPY requirements/runtime.lock requirements/
RUN /opt/comfy-batch/bin/python -m pip install --require-hashes -r requirements/runtime.lock

COPY pyproject.toml README.md LICENSE ./
COPY config config
COPY runner runner
COPY tasks tasks
RUN /opt/comfy-batch/bin/python -m pip install --no-deps --no-build-isolation .


FROM python:3.11-slim

RUN groupadd --gid 10001 comfy \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin comfy \
 && install --directory --owner=10001 --group=10001 /data
COPY --from=build /opt/comfy-batch /opt/comfy-batch

ENV PATH=/opt/comfy-batch/bin:$PATH PYTHONUNBUFFERED=1 COMFY_BATCH_HOME=/data
WORKDIR /data
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["comfy-batch"]
CMD ["--help"]
