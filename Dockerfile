# Two images: `docker build .` (CPU: every process of a team) and `docker build --target gpu .` (steps that train or
# generate workflows, and `podium serve` on a GPU). `make containers` builds the first and runs compose.yaml with it.
# pip's configuration of the machine that builds is handed over by `--secret id=pip,src=FILE` and does not stay in an
# image: a mirror, or the index of PyTorch's CPU builds, without which the CPU image holds CUDA's libraries too, and with
# which the GPU image would hold torch without CUDA.
FROM docker.io/library/python:3.11-slim-bookworm AS base

# git: the commit of a run; bubblewrap: the sandbox of programs that are graded.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 podium \
    && install --directory --owner podium /var/lib/dagster /srv/podium
COPY --chown=podium config/team/dagster.yaml config/team/workspace.yaml /var/lib/dagster/

WORKDIR /opt/podium
# DVC has an environment of its own, beside this one, as on any machine (constraints-dvc.txt).
COPY constraints-dvc.txt ./
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python -m venv /usr/local/.venv-dvc \
    && /usr/local/.venv-dvc/bin/pip install --no-cache-dir --constraint constraints-dvc.txt 'dvc[s3]'
# What the code needs, before the code: a change of the code does not install it again.
COPY LICENSE README.md constraints.txt pyproject.toml setup.py ./
ENV PODIUM_TEAM=1 PODIUM_ROOT=/srv/podium DAGSTER_HOME=/var/lib/dagster PODIUM_DVC=/usr/local/.venv-dvc/bin/dvc \
    DVC_SITE_CACHE_DIR=/var/tmp/dvc
# No tool reports home. LiteLLM would download its price table: without a network MLflow's server then waits for ever.
ENV LITELLM_LOCAL_MODEL_COST_MAP=True MLFLOW_DISABLE_TELEMETRY=true DO_NOT_TRACK=1
CMD ["podium", "--help"]


FROM base AS gpu

# A compiler: Triton (vLLM, torch.compile) compiles on the machine with the GPU.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
# config/deepspeed uses one of DeepSpeed's extensions (its optimizer is PyTorch's): it is compiled here, not at a run. A
# machine that builds has no GPU, so DeepSpeed must be given the accelerator whose extensions it shall know.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip install --no-cache-dir --constraint constraints.txt '.[gpu,team]' \
    && DS_ACCELERATOR=cuda DS_BUILD_UTILS=1 pip install --no-cache-dir --no-deps --no-build-isolation --force-reinstall \
        --no-binary deepspeed --constraint constraints.txt deepspeed \
    && python -c 'from deepspeed.git_version_info import installed_ops; assert installed_ops["utils"]'
COPY . .
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip install --no-cache-dir --no-deps --force-reinstall .
USER podium
WORKDIR /srv/podium


FROM base AS cpu

RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip install --no-cache-dir --constraint constraints.txt '.[team]'
COPY . .
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip install --no-cache-dir --no-deps --force-reinstall .
USER podium
WORKDIR /srv/podium
