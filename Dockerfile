# The halfscope server: the wheel is built with the web app inside, then installed alone into a slim image.

FROM node:24-slim AS web
WORKDIR /source/web
COPY web/package.json web/package-lock.json web/.npmrc ./
RUN npm ci --no-audit --no-fund
COPY web/ ./
RUN npm run build

FROM python:3.12-slim AS wheel
WORKDIR /source
RUN pip install --no-cache-dir build==1.3.0
COPY pyproject.toml hatch_build.py README.md LICENSE CHANGELOG.md ./
COPY agent/ agent/
COPY server/ server/
COPY --from=web /source/web/dist web/dist
RUN python -m build --wheel --outdir /wheels

FROM python:3.12-slim
# No shell, no password, a fixed id: volumes keep their owner across images.
RUN groupadd --gid 65504 halfscope \
    && useradd --uid 65504 --gid halfscope --home-dir /data --no-create-home --shell /usr/sbin/nologin halfscope \
    && install --directory --owner=halfscope --group=halfscope --mode=0700 /data
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    pip install --no-cache-dir "$(echo /wheels/halfscope-*.whl)[server,postgres]"
USER 65504:65504
# Inside a container every address is its own; what is published, and to whom, is decided outside (docker-compose.yml).
ENV HALFSCOPE_HOME=/data \
    HALFSCOPE_HOST=0.0.0.0 \
    HALFSCOPE_PORT=65504
VOLUME /data
EXPOSE 65504
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:65504/healthz', timeout=2)"]
ENTRYPOINT ["halfscope"]
CMD ["serve", "--no-browser"]
