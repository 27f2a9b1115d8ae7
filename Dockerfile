# One image for every process of a team: code servers, daemon, web server, MLflow's server, `podium serve`.
# Built and run nowhere yet by this project's tests: see docs/deployment.md.
FROM python:3.11-slim-bookworm

# git: the commit of a run; bubblewrap: the sandbox of programs that are graded.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 podium

WORKDIR /opt/podium
COPY . .
# DVC has an environment of its own, beside this one, as on any machine (constraints-dvc.txt).
RUN pip install --no-cache-dir --constraint constraints.txt ".[team]" \
    && python -m venv /usr/local/.venv-dvc \
    && /usr/local/.venv-dvc/bin/pip install --no-cache-dir --constraint constraints-dvc.txt 'dvc[s3]' \
    && mkdir -p /var/lib/dagster /srv/podium \
    && cp config/team/dagster.yaml config/team/workspace.yaml /var/lib/dagster/ \
    && chown -R podium /var/lib/dagster /srv/podium

USER podium
ENV PODIUM_TEAM=1 PODIUM_ROOT=/srv/podium DAGSTER_HOME=/var/lib/dagster PODIUM_DVC=/usr/local/.venv-dvc/bin/dvc \
    DVC_SITE_CACHE_DIR=/var/tmp/dvc
WORKDIR /srv/podium
CMD ["podium", "--help"]
